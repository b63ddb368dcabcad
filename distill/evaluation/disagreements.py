"""The rows on which a student's predictions differ from the teacher's, for a person to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from distill.data.task import Task
from distill.data.task_types import SECONDS, TaskType, labelled
from distill.data.tasks import targets_of
from distill.evaluation.results import Disagreement, Identity

if TYPE_CHECKING:
    from datasets import Dataset

MOST = 50
"""Maximum rows of a task."""
CHARACTERS = 200
"""Characters of a text that are shown."""


def shown(row: Any) -> list[str]:
    """The text, the texts of the row with its choices in one, or the words with spaces between them."""
    if isinstance(row, tuple):
        return [text if isinstance(text, str) else " | ".join(text) for text in row]
    return [row] if isinstance(row, str) else [" ".join(row)]


def short(text: str, most: int = CHARACTERS) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def label_of(kind: TaskType, target: np.ndarray, names: Sequence[str], divided: Any) -> str | float | None:
    """The label of a row: names of labels, a number, a choice, the answers in a context, or the spans of a text in
    words; None without one.

    Args:
        target: [1] or [1, labels] of the row, as the kind encodes it.
        divided: the row as `TaskType.answer` takes it, of kinds with `divide`.
    """
    if not labelled(target)[0]:
        return None
    if kind.per_token:
        return kind.brief(kind.answer(np.eye(len(names))[target[0]], names, 0.5, [divided])[0])
    if kind.choices:
        return str(divided[1][target[0]])
    if kind.extractive:
        spans = np.asarray(target[0]).reshape(-1, 2).tolist()
        return " | ".join(divided[1][first:end] for first, end in spans if first >= 0) or "no answer"
    if kind.flags is None:
        return float(target[0])
    flags = kind.flags(target, len(names))[0]
    return ", ".join(name for name, flag in zip(names, flags, strict=True) if flag)


def listed(
    kind: TaskType,
    outputs: Sequence[tuple[np.ndarray, float]],
    texts: Sequence[Any],
    targets: np.ndarray | None,
    names: Sequence[str],
) -> list[tuple[Any, ...]]:
    """For each row its label, as from `label_of`, and what `TaskType.answer` returns for it, of each model.

    Args:
        outputs: of each model [R, C] of the rows, or of the words of texts, and its threshold.
        texts: the rows, as `Model.predict` takes them.
        targets: [n] or [n, labels] of the rows, as the kind encodes them; None without.
    """
    divided = [] if kind.divide is None else [kind.divide(text) for text in texts]
    answers = [kind.answer(values, names, threshold, divided) for values, threshold in outputs]
    parts = divided or [None] * len(texts)
    labels = [
        None if targets is None else label_of(kind, targets[n : n + 1], names, parts[n]) for n in range(len(texts))
    ]
    return list(zip(labels, *answers, strict=True))


def readable(kind: TaskType) -> bool:
    """Whether the rows of a kind are listed. Words and pairs of vectors are not."""
    return not kind.per_token and not kind.separate


def disagreements(
    task: Task, split: str, rows: Dataset, model: Identity, teacher: np.ndarray, student: np.ndarray, most: int = MOST
) -> list[Disagreement]:
    """The rows with other predictions, in descending order of the difference of the outputs; of numbers, which are
    seldom the same, the rows with the largest differences.

    Args:
        task: of a `readable` kind.
        model: the student.
        teacher, student: outputs [n, C] for the rows.
    """
    kind = task.kind
    distance = kind.difference(student, teacher)
    if kind.same is not None:
        differs = ~kind.same(task.predictions(student), task.predictions(teacher))
        distance = np.where(differs, distance, -np.inf)
    order = np.argsort(-distance, kind="stable")[:most]
    numbers = order[distance[order] > (-np.inf if kind.same is not None else 0)]
    if not len(numbers):
        return []
    part = rows.select(numbers)
    columns = [*task.columns, SECONDS] if kind.choices else [*task.columns]
    texts = list(zip(*(part[column][:] for column in columns), strict=True))
    outputs = [(each[numbers], task.threshold) for each in (teacher, student)]
    found = listed(kind, outputs, texts, targets_of(part), task.labels)
    return [
        Disagreement(
            task=task.name,
            split=split,
            name=model.name,
            scheme=model.scheme,
            backend=model.backend,
            row=int(number),
            text=" | ".join(map(short, shown(row))),
            teacher=kind.brief(of_teacher),
            student=kind.brief(of_student),
            label=label,
        )
        for number, row, (label, of_teacher, of_student) in zip(numbers, texts, found, strict=True)
    ]
