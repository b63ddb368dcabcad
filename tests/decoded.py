"""Invented results as reports take them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import convert

from distill.evaluation.results import Model, Results


def decoded(document: dict[str, Any]) -> Results:
    """JSON values, which must be of the right types, as results."""
    return convert(document, Results)


def model_of(row: dict[str, Any]) -> Model:
    return convert(row, Model)


def decoded_all(documents: Iterable[dict[str, Any]]) -> list[Results]:
    return [decoded(document) for document in documents]
