"""Rows about parcels, for tests of how files of rows are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def texts(count: int) -> list[str]:
    return [f"Parcel {i} of sender {i * 13 % 89} was left at door {i % 7}." for i in range(count)]


def others(count: int) -> list[str]:
    """Second texts."""
    return [f"A neighbour of number {i} has taken it in on day {i * 5}." for i in range(count)]


def cycles(count: int) -> Callable[..., list[Any]]:
    """What repeats its arguments up to this number of values."""
    return lambda *values: [values[i % len(values)] for i in range(count)]
