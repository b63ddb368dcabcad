"""What is in the development and reported splits of the tasks of a run, and may thus not be in a transfer set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from distill.data.near import normalized
from distill.data.transfer import Row, key

if TYPE_CHECKING:
    from datasets import Dataset

    from distill.data.tasks import TaskData


@dataclass(frozen=True)
class Apart:
    """What the development and reported splits have."""

    texts: frozenset[str] = frozenset()
    """Normalized texts of all tasks."""
    rows: Mapping[str, frozenset[Row]] = field(default_factory=dict)
    """Task whose rows have several parts -> keys of its rows, as from `transfer.key`."""


def parts_of(data: TaskData, rows: Dataset) -> list[Row]:
    """The parts of rows of a task of whose kind transfer sets are made, as in `Making`."""
    layout = data.task.kind.layout
    assert layout.making is not None
    return layout.making.read(*(rows[column][:] for column in (*data.task.columns, *layout.hidden)))


def apart(tasks: Mapping[str, TaskData]) -> Apart:
    """What the development and reported splits of the tasks have."""
    # All rows of a column are texts, or all are lists, of words or of choices.
    texts = frozenset(
        normalized(text)
        for data in tasks.values()
        for rows in _splits(data)
        for column in data.task.columns
        for text in rows[column][:]
        if isinstance(text, str)
    )
    return Apart(texts, {name: _rows(data) for name, data in tasks.items() if data.task.kind.layout.making is not None})


def _rows(data: TaskData) -> frozenset[Row]:
    every = (row for rows in _splits(data) for row in parts_of(data, rows))
    return frozenset(key(row) for row in every if len(row) > 1)


def _splits(data: TaskData) -> Iterator[Dataset]:
    yield from data.development.values()
    yield from data.reported.values()
