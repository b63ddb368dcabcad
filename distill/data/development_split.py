"""The rows on which models are scored to choose among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from distill.data.splits import of_queries
from distill.data.task_types.task_type import group_numbers
from distill.data.tasks import TaskData

if TYPE_CHECKING:
    from datasets import Dataset

CHOICE_ROWS = 2000
"""Most development rows of a task on which a model is run to choose among several."""


def aside(data: TaskData) -> dict[str, Dataset]:
    """Split -> at most `CHOICE_ROWS` development rows in all, of which no row is reported.

    These rows decide on the moment of a training, temperatures, the student of `target.retained`, and settings that a
    reader compares.
    """
    splits = {split: rows for split, rows in data.development.items() if split not in data.reported}
    most = CHOICE_ROWS // max(1, len(splits))
    return {split: rows.select(_spaced(data, rows, most)) for split, rows in splits.items()}


def _spaced(data: TaskData, rows: Dataset, most: int) -> np.ndarray:
    """Numbers of at most `most` rows at even distances; of rankings, those of queries at even distances."""
    if len(rows) <= most or (queries := data.task.queries) is None:
        return np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int)
    numbers = group_numbers(rows[queries][:])
    count = int(numbers.max()) + 1
    fitting = max(1, most * count // len(rows))
    return of_queries(numbers, np.linspace(0, count - 1, fitting).astype(int), most)


def deciding(data: TaskData) -> dict[str, Dataset]:
    """Split -> the rows whose scores decide on a model that is quantized, and whether a budget tries another one: those
    of `aside`, by which a report chooses too. A task without such rows has no development rows but the reported
    ones."""
    return aside(data) or data.development
