"""Soft labels of rows with parts: a distribution for each word, over the choices, or over spans of the context. Without
torch.

A row that has none has an empty array, whether the file has null, an empty text or an empty list.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distill.data import arrow as pa
from distill.data.task_types.answers import NONE
from distill.data.task_types.layout import SECONDS, WORDS
from distill.data.task_types.soft import SUM_TOLERANCE, from_text, is_probability, log_probabilities, logarithms
from distill.data.task_types.task_type import Where, divided, is_list, one_array
from distill.errors import DataError


def of_words(column: pa.ChunkedArray, numbers: Mapping[str, int], where: Where, name: str) -> np.ndarray:
    """[n] arrays [words, labels] of logarithms of probabilities, as from `log_probabilities`; NaN for a word that has
    none (null).

    Args:
        column: for each row a list, with a list or an object for each word; or the JSON text of one.
    """
    words, sizes = _flat(column, where, name, "an entry for each word")
    rows, firsts = np.repeat(np.arange(len(sizes)), sizes), np.cumsum(sizes) - sizes

    def place(word: int) -> str:
        row = int(rows[word])
        return f"{where(row)}, word {word - int(firsts[row]) + 1}"

    return divided(log_probabilities(words, numbers, place, name, ""), sizes)


def of_choices(column: pa.ChunkedArray, numbers: Mapping[str, int], where: Where, name: str) -> np.ndarray:
    """[n] arrays [choices, 1] of logarithms of probabilities that sum to 1.

    Args:
        column: for each row a list of the probabilities of its choices, in their order; or the JSON text of one.
        numbers: unused, as choices have no labels.
    """
    entries, sizes = _flat(column, where, name, "a probability for each choice")
    rows = np.repeat(np.arange(len(sizes)), sizes)
    given = [from_text(entry) for entry in entries.to_pylist()]
    for row, value in zip(rows.tolist(), given, strict=True):
        if not is_probability(value):
            raise DataError(
                f"{where(row)}: got probability {value!r} in {name}; must be a number from 0 to 1; correct the row"
            )
    values = np.array(given, np.float64)
    totals = _totals(values, rows, sizes, where, name, "")
    return divided(logarithms(values / totals[rows]).astype(np.float32)[:, None], sizes)


def of_spans(column: pa.ChunkedArray, numbers: Mapping[str, int], where: Where, name: str) -> np.ndarray:
    """[n] arrays [spans, 3] of the first character, the end and the probability of each candidate for the answer, which
    sum to 1; first character and end are `NONE` for no answer.

    Args:
        column: for each row a list of objects with `start`, `end` and `score`; start and end are null for no answer.
        numbers: unused, as spans have no labels.
    """
    triples, counts = list[tuple[int, int, float]](), list[int]()
    for row, value in enumerate(column.to_pylist()):
        spans = from_text(value)
        if spans is not None and not isinstance(spans, list):
            raise DataError(
                f"{where(row)}: got {str(spans)[:80]!r} in {name}; must be a list of objects with start, end and "
                "score; correct the row"
            )
        triples += [_triple(span, where(row), name) for span in spans or ()]
        counts.append(len(spans or ()))
    values, sizes = np.array(triples, np.float64).reshape(-1, 3), np.array(counts, np.int64)
    rows = np.repeat(np.arange(len(sizes)), sizes)
    more = ", where an object without start and end stands for no answer"
    values[:, 2] /= _totals(values[:, 2], rows, sizes, where, name, more)[rows]
    return divided(values, sizes)


def _triple(span: Any, where: str, name: str) -> tuple[int, int, float]:
    given: dict[str, Any] = span if isinstance(span, dict) else {}
    start: Any = given.get("start")
    end: Any = given.get("end")
    score: Any = given.get("score")
    if not is_probability(score):
        raise DataError(f"{where}: got score {score!r} in {name}; must be a number from 0 to 1; correct the row")
    if start is None and end is None:
        return NONE, NONE, float(score)
    places = [math.nan if isinstance(at, bool) or not isinstance(at, int | float) else float(at) for at in (start, end)]
    if not all(at.is_integer() for at in places) or not 0 <= places[0] < places[1]:
        raise DataError(
            f"{where}: got a span from {start} to {end} in {name}; must be its first character in the context, from 0, "
            "and its end, or null twice for no answer; correct the row"
        )
    return int(places[0]), int(places[1]), float(score)


def fit_words(values: np.ndarray, rows: pa.Table, text: Sequence[str], where: Where, name: str) -> None:
    """Raise DataError for the first row with another number of entries than words. `values`: as from `of_words`."""
    sizes = np.asarray(one_array(rows[WORDS]).value_lengths()) // 2
    _same_sizes(values, sizes, where, name, "words", "one for each word")


def fit_choices(values: np.ndarray, rows: pa.Table, text: Sequence[str], where: Where, name: str) -> None:
    """Raise DataError for the first row with another number of probabilities than choices."""
    sizes = np.asarray(one_array(rows[SECONDS]).value_lengths())
    _same_sizes(values, sizes, where, name, "choices", "one for each choice")


def fit_context(values: np.ndarray, rows: pa.Table, text: Sequence[str], where: Where, name: str) -> None:
    """Raise DataError for the first row with a span that is not in its context."""
    for row, (spans, context) in enumerate(zip(values, rows[text[1]], strict=True)):
        end = int(spans[:, 1].max(initial=0))
        if end and end > (length := len(context.as_py())):
            raise DataError(
                f"{where(row)}: got a span that ends at {end} in {name}; must lie in the context's {length} "
                "characters; correct the row"
            )


def _same_sizes(values: np.ndarray, sizes: np.ndarray, where: Where, name: str, parts: str, rule: str) -> None:
    given = np.array([len(value) for value in values], np.int64)
    wrong = np.flatnonzero((given > 0) & (given != sizes))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{where(row)}: got a list of {given[row]} in {name} for {sizes[row]} {parts}; must have {rule}; "
            "correct the row"
        )


def _flat(column: pa.ChunkedArray, where: Where, name: str, form: str) -> tuple[pa.ChunkedArray, np.ndarray]:
    """(the entries of all lists of a column, how many each row has). Entries of JSON text are JSON text."""
    if pa.types.is_null(column.type):
        return pa.chunked_array([pa.array([], pa.string())]), np.zeros(len(column), np.int64)
    if is_list(column.type):
        lists = one_array(column)
        sizes = np.asarray(lists.value_lengths().fill_null(0)).astype(np.int64)
        return pa.chunked_array([lists.flatten()]), sizes
    entries, counts = list[str](), list[int]()
    for row, value in enumerate(column.to_pylist()):
        parsed = from_text(value)
        if parsed is not None and not isinstance(parsed, list):
            raise DataError(
                f"{where(row)}: got {str(value)[:80]!r} in {name}; must be a list with {form}; correct the row"
            )
        entries += [json.dumps(entry) for entry in parsed or ()]
        counts.append(len(parsed or ()))
    return pa.chunked_array([pa.array(entries, pa.string())]), np.array(counts, np.int64)


def _totals(values: np.ndarray, rows: np.ndarray, sizes: np.ndarray, where: Where, name: str, more: str) -> np.ndarray:
    """[n] sums of the values of each row. Raises DataError for the first row with values that do not sum to 1."""
    totals = np.bincount(rows, values, len(sizes))
    wrong = np.flatnonzero((sizes > 0) & (np.abs(totals - 1) > SUM_TOLERANCE))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{where(row)}: got probabilities in {name} that sum to {totals[row]:.6g}; must sum to 1{more}; correct "
            "the row"
        )
    return totals
