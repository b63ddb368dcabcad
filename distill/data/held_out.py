"""What is in the development and reported splits of the tasks of a run, and may thus not be in a transfer set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from distill.data.near import normalized
from distill.data.task import Task
from distill.data.transfer import Row, key

if TYPE_CHECKING:
    from datasets import Dataset

Splits = Mapping[str, tuple[Task, Sequence["Dataset"]]]
"""Name of a task -> the task, and its development and reported rows."""


@dataclass(frozen=True)
class Apart:
    """What the development and reported splits have."""

    texts: frozenset[str] = frozenset()
    """Normalized texts of all tasks."""
    rows: Mapping[str, frozenset[Row]] = field(default_factory=dict)
    """Task whose rows have several parts -> keys of its rows, as from `transfer.key`."""


def parts_of(task: Task, rows: Dataset) -> list[Row]:
    """The parts of rows of a task of whose kind transfer sets are made, as in `Making`."""
    layout = task.kind.layout
    assert layout.making is not None
    return layout.making.read(*(rows[column][:] for column in (*task.columns, *layout.hidden)))


def apart(splits: Splits) -> Apart:
    """What the development and reported splits have."""
    # All rows of a column are texts, or all are lists, of words or of choices.
    texts = frozenset(
        normalized(text)
        for task, parts in splits.values()
        for rows in parts
        for column in task.columns
        for text in rows[column][:]
        if isinstance(text, str)
    )
    made = {name: each for name, each in splits.items() if each[0].kind.layout.making is not None}
    return Apart(texts, {name: _keys(task, parts) for name, (task, parts) in made.items()})


def _keys(task: Task, parts: Sequence[Dataset]) -> frozenset[Row]:
    return frozenset(key(row) for rows in parts for row in parts_of(task, rows) if len(row) > 1)
