"""Rows about parcels, for tests of how files of rows are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distill.data.labelled import Labelled
from distill.data.splits import Split


def texts(count: int) -> list[str]:
    return [f"Parcel {i} of sender {i * 13 % 89} was left at door {i % 7}." for i in range(count)]


def others(count: int) -> list[str]:
    """Second texts."""
    return [f"A neighbour of number {i} has taken it in on day {i * 5}." for i in range(count)]


def cycles(count: int) -> Callable[..., list[Any]]:
    """What repeats its arguments up to this number of values."""
    return lambda *values: [values[i % len(values)] for i in range(count)]


def splits_of(rows: Labelled) -> dict[str, Split]:
    """All splits. Choices may be made on rows that are reported."""
    return ({} if rows.train is None else {"train": rows.train}) | rows.development | rows.reported


def values_of(rows: Labelled, column: str = "label") -> dict[str, Any]:
    """First text -> a column, over all splits."""
    found = {}
    for part in splits_of(rows).values():
        table = part.table.take(part.rows)
        found |= dict(zip(table[rows.task.columns[0]].to_pylist(), table[column].to_pylist(), strict=True))
    return found
