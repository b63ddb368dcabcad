"""Records of all tasks: GLUE, and five generated from docstrings. Importing them needs no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """A task: its columns, classes and metrics, and the numbers of rows in its official splits."""

    name: str
    columns: tuple[str, ...]
    """The text column, or the two columns of a text pair."""
    num_labels: int
    """Number of classes; 1 for a regression."""
    metrics: tuple[str, ...]
    """Names of metrics in distill.evaluate; their mean is the task's score."""
    validation: tuple[str, ...]
    """Names of the validation splits."""
    official: dict[str, int]
    """Split -> number of rows in the official data set."""


def _task(name: str, columns: str, num_labels: int, metrics: str, rows: tuple[int, ...], *splits: str) -> Task:
    names = splits or ("validation",)
    official = dict(zip(("train", *names), rows, strict=True))
    return Task(name, tuple(columns.split()), num_labels, tuple(metrics.split()), names, official)


GLUE: dict[str, Task] = {
    task.name: task
    for task in (
        _task("cola", "sentence", 2, "matthews", (8551, 1043)),
        _task("sst2", "sentence", 2, "accuracy", (67349, 872)),
        _task("mrpc", "sentence1 sentence2", 2, "f1 accuracy", (3668, 408)),
        _task("stsb", "sentence1 sentence2", 1, "pearson spearman", (5749, 1500)),
        _task("qqp", "question1 question2", 2, "f1 accuracy", (363846, 40430)),
        _task(
            "mnli", "premise hypothesis", 3, "accuracy", (392702, 9815, 9832),
            "validation_matched", "validation_mismatched",
        ),
        _task("qnli", "question sentence", 2, "accuracy", (104743, 5463)),
        _task("rte", "sentence1 sentence2", 2, "accuracy", (2490, 277)),
        _task("wnli", "sentence1 sentence2", 2, "accuracy", (635, 71)),
    )
}  # fmt: skip
"""Numbers of rows as published on the hub (nyu-mll/glue); metrics as in Wang et al. 2019, arXiv 1804.07461."""

TRAIN, VALIDATION = 680, 400
"""Rows of each docstring task, if there are enough documents: multiples of the numbers of classes."""

CLASSES = 8
"""Classes of the task `package`: the first eight of distill.data.harvest.PACKAGES that are installed."""

DOCSTRINGS: dict[str, Task] = {
    task.name: task
    for task in (
        _task("package", "text", CLASSES, "accuracy", (TRAIN, VALIDATION)),
        _task("corrupted", "sentence", 2, "matthews", (TRAIN, VALIDATION)),
        _task("body", "summary body", 2, "f1 accuracy", (TRAIN, VALIDATION)),
        _task("order", "sentence1 sentence2", 2, "accuracy", (TRAIN, VALIDATION)),
        _task("overlap", "text1 text2", 1, "pearson spearman", (TRAIN, VALIDATION)),
    )
}

ABOUT_DOCSTRINGS = (
    "These tasks are generated from docstrings of installed packages: package (which package is a text from), "
    "corrupted (was a sentence altered), body (does a body belong to a summary line), order (are two sentences in "
    "their original order), overlap (how many words do two texts share). Their scores are not comparable with GLUE's."
)
"""What a report states about `DOCSTRINGS`."""

TASKS: dict[str, dict[str, Task]] = {"docstrings": DOCSTRINGS, "glue": GLUE}
"""Setting `tasks.kind` -> name of a task -> task."""
