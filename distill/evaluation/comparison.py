"""Scores of models on the same rows, with paired intervals and retained %, for `distill.evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice, zip_longest
from typing import Any

import numpy as np

from distill.data.task import Task, task_of_model
from distill.data.task_types import MISSING, TaskType, labelled
from distill.errors import ConfigError, DataError
from distill.evaluation import chance, resamples, retained
from distill.evaluation.clusters import clusters
from distill.inference.artifact import Model, class_names_of, config_of, count, inputs_in, rows_in
from distill.inference.predict import stacked
from distill.inference.runners import Batch, Run
from distill.models.families.head import architecture_of
from distill.models.families.record import ANSWERS, CHOICES, TEXTS, TOKENS

SPLIT = ("dataset", "validation")
"""Task and split by which the rows are known to the functions of this room."""


def task_of(model: Model, metrics: Sequence[str] | None) -> Task:
    """The task of a model with a head, with the labels of its config.

    Raises:
        ConfigError: for a model without such a head, and for metrics of another kind of task.
    """
    architecture, config = architecture_of(class_names_of(model)), config_of(model)
    if architecture not in (TEXTS, TOKENS, CHOICES):
        wanted = "use python -m distill.compare" if architecture == ANSWERS else "load it with a head of such a task"
        raise ConfigError(
            f"models: got a {(class_names_of(model) or ['model without a class'])[0]}; must be a model for sequence "
            f"classification, token classification or multiple choice; {wanted}"
        )
    task = task_of_model("dataset", config, architecture)
    known = task.kind.all_metrics
    if unknown := [name for name in metrics or () if name not in known]:
        raise ConfigError(f"metrics: got {unknown[0]}; must be one of {', '.join(known)} for {task.kind.name}")
    return replace(task, metrics=tuple(metrics or task.metrics))


def truth_of(kind: TaskType, labels: Sequence[str], batches: Sequence[Batch]) -> np.ndarray:
    """The labels of all rows, [n] or [n, labels], in the form that metrics take. Rows and tokens without a label are
    left out.

    Raises:
        DataError: for batches without labels, and for labels that the model does not have.
    """
    if any("labels" not in batch for batch in batches):
        raise DataError("dataset: got rows without labels; must have labels, or label, in every row")
    if kind.per_token:
        targets = np.empty(sum(len(batch["labels"]) for batch in batches), object)
        targets[:] = [row[row != MISSING] for batch in batches for row in batch["labels"]]
        _check(np.concatenate([*targets, np.zeros(0, np.int64)]), len(labels))
        for row, tags in enumerate(targets):
            targets[row] = tags.astype(np.int64)
        return kind.truth(targets, (), labels)
    every = np.concatenate([batch["labels"][labelled(batch["labels"])] for batch in batches])
    if kind.same is not None:
        _check(every, 2 if every.ndim == 2 else len(labels) or int(every.max(initial=0)) + 1)
        every = every.astype(np.int64)
    return every.reshape(len(every)) if every.ndim == 2 and every.shape[1] == 1 and not kind.named else every


def _check(labels: np.ndarray, count: int) -> None:
    if not len(labels):
        raise DataError("dataset: got no row with a label; must have at least one")
    if labels.dtype.kind not in "biuf":
        raise DataError(
            f"dataset: got the label {str(labels.flat[0])!r}; must be a whole number from 0 to {count - 1}; use the "
            "numbers of the model's config.id2label"
        )
    wrong = labels[(labels < 0) | (labels >= count) | (labels != np.floor(labels))]
    if wrong.size:
        raise DataError(
            f"dataset: got the label {wrong.flat[0]}; must be a whole number from 0 to {count - 1}; use the numbers of "
            "the model's config.id2label"
        )


def outputs_of(kind: TaskType, run: Run, batches: Sequence[Batch]) -> np.ndarray:
    """Outputs [n, C] of all rows with a label, in the order of `truth_of`. For multiple choice, C is the largest number
    of choices, and choices that a row lacks are `ABSENT`."""
    parts = []
    for batch in batches:
        logits = run(inputs_in(batch))
        if kind.per_token:
            parts.append(logits[batch["labels"][:, : logits.shape[1]] != MISSING])
        elif kind.choices:
            rows = len(batch["input_ids"])
            parts.append(logits.reshape(rows, count(batch) // rows)[labelled(batch["labels"])])
        else:
            parts.append(logits[labelled(batch["labels"])])
    return stacked(parts)


def parts_of(kind: TaskType, batches: Sequence[Batch]) -> np.ndarray | None:
    """[n] the part that each row with a label is drawn with, because they share a text: see `clusters`. None if each is
    drawn alone, as texts of words are.

    The texts of a row are its tokens between separators. A token that ends every row is the separator; without one,
    the row is one text. A token that starts every row belongs to no text.
    """
    if kind.per_token:
        return None
    ids = rows_in(batches)
    rows: list[list[list[int]]] = []
    for batch in batches:
        each = count(batch) // len(batch["input_ids"])
        for chosen in labelled(batch["labels"]):
            texts = [row["input_ids"][0].tolist() for row in islice(ids, each)]
            rows += [texts] if chosen else []
    starts, ends = ({tuple(text[part]) for row in rows for text in row} for part in (slice(1), slice(-1, None)))
    start, end = (next(iter(each), ()) if len(each) == 1 else () for each in (starts, ends))
    texts = [[part for text in row for part in _between(text[len(start) :], end)] for row in rows]
    columns = [*zip_longest(*texts, fillvalue="")]
    return clusters(columns) if columns else None


def _between(ids: Sequence[int], separator: tuple[int, ...]) -> list[str]:
    """The parts of tokens between separators, as texts of numbers."""
    return [" ".join(map(str, part)) for ends, part in groupby(ids, lambda token: token in separator) if not ends]


def compared(
    task: Task, outputs: Mapping[str, np.ndarray], truth: np.ndarray, parts: np.ndarray | None = None
) -> list[dict[str, Any]]:
    """A row for each model: its scores in percent with 95% intervals, and what it retains of the first model's score.

    All models are scored on the same 10,000 resamples of the rows, so that the intervals of retained % are paired.
    Intervals are over rows, and not over trainings. Rows of one part are drawn together.

    Args:
        outputs: name of a model -> its outputs [n, C]. The first is the reference.
        truth: as from `truth_of`.
        parts: as from `parts_of`.
    """
    names = {task.name: task.metrics}
    predictions = {name: {SPLIT: (task.graded(each, truth), truth)} for name, each in outputs.items()}
    scores = {name: retained.scores(each, names) for name, each in predictions.items()}
    drawn = retained.drawn(predictions, names, clusters={} if parts is None else {SPLIT: parts})
    floor = chance.of_tasks({SPLIT: truth}, names)
    reference, rows = next(iter(outputs)), []
    for name, own in scores.items():
        of_metrics = {key: resamples.interval(values) for key, values in drawn[name][task.name].items()}
        intervals = {key: resamples.with_width(ends) for key, ends in of_metrics.items()}
        row: dict[str, Any] = {"model": name, "scores": own[task.name], "ci95": intervals}
        if name != reference:
            first, counted = scores[reference], [task.name]
            both = retained.intervals(drawn[name], drawn[reference], first, counted, floor)
            row |= {"retained": retained.retained(own, first, counted).headline, "retained_ci95": both[0]}
            row |= {"above_chance": retained.above_chance(own, first, floor, counted), "above_chance_ci95": both[1]}
        rows.append(row)
    return rows
