"""The rows on which a student's predictions differ from the teacher's, for a person to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from distill.data.task import Task
from distill.data.task_types import TaskType, labelled
from distill.data.task_types.layout import Parts
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


def listed(
    kind: TaskType,
    outputs: Sequence[tuple[np.ndarray, float]],
    rows: Sequence[Parts],
    targets: np.ndarray | None,
    names: Sequence[str],
) -> list[tuple[Any, ...]]:
    """For each row its label, as `TaskType.shown` returns it, None without one, and what `TaskType.answer` returns for
    it, of each model.

    Args:
        outputs: of each model [R, C] of the rows, or of the words of texts, and its threshold.
        rows: the parts of the rows.
        targets: [n] or [n, labels] of the rows, as the kind encodes them; None without.
    """
    answers = [kind.answer(values, names, threshold, rows) for values, threshold in outputs]
    given = [False] * len(rows) if targets is None else labelled(targets)
    labels = [
        kind.shown(targets[n], names, parts) if targets is not None and given[n] else None
        for n, parts in enumerate(rows)
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
    texts = list(zip(*(part[column][:] for column in (*task.columns, *kind.layout.content)), strict=True))
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
