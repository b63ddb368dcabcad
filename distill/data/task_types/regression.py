"""Regression: a number for one or two texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distill.data import arrow as pa
from distill.data import arrow_compute as pc
from distill.data.task_types import soft_written
from distill.data.task_types.numerals import decimal_commas, read_numbers, with_points
from distill.data.task_types.task_type import TaskType, Where, Words, is_number, is_text
from distill.data.task_types.written import PLAIN
from distill.errors import DataError

LARGEST = float(np.finfo(np.float32).max)
"""Targets are float32."""


def _encode(column: pa.ChunkedArray, labels: Sequence[str], where: Where, key: str) -> np.ndarray:
    numbers, bad = numeric(column)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DataError(
            f"{where(row)}: got label {column[row].as_py()!r}; must be a finite number; correct the row, or leave the "
            "label empty"
        )
    return numbers.astype(np.float32)


def _soft(column: pa.ChunkedArray, numbers: Mapping[str, int], where: Where, name: str) -> np.ndarray:
    """[n, 1] the number that the model should output for each row."""
    column = with_points(column) if decimal_commas(column) else column
    values, bad = numeric(column) if _accepts(column.type) else (np.zeros(0), np.ones(len(column), np.bool_))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DataError(
            f"{where(row)}: got {column[row].as_py()!r} in {name}; must be a finite number; correct the row, or "
            "leave it empty"
        )
    return values.astype(np.float32)[:, None]


def numeric(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """The values of a column as float64 [n], NaN for a row without a value, and whether each is not a finite number
    [n]."""
    if is_text(column.type):
        text = pc.replace_substring_regex(pc.fill_null(pc.utf8_trim_whitespace(column), ""), "^\u2212", "-")
        fits = pc.match_substring_regex(text, PLAIN)
        plain = pc.if_else(fits, pc.replace_substring_regex(text, r"^\+", ""), pa.scalar(None, pa.string()))
        values, bad = pc.cast(plain, pa.float64()), pc.and_(pc.invert(fits), pc.not_equal(text, "")).to_numpy()
    else:
        values = pc.cast(column, pa.float64())
        bad = pc.fill_null(pc.is_nan(values), False).to_numpy()
    numbers = pc.fill_null(values, np.nan).to_numpy()
    return numbers, bad | (np.abs(numbers) > LARGEST)


def _accepts(data_type: pa.DataType) -> bool:
    return is_text(data_type) or is_number(data_type) or pa.types.is_null(data_type)


def _answer(
    outputs: np.ndarray, labels: Sequence[str], threshold: float, words: Sequence[Words]
) -> list[dict[str, Any]]:
    return [{"score": score} for score in outputs[:, 0].tolist()]


def _difference(outputs: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.abs(outputs[:, 0].astype(np.float64) - other[:, 0])


REGRESSION = TaskType(
    name="regression",
    summary="outputs a number",
    problem="regression",
    metrics=("pearson", "spearman"),
    all_metrics=("pearson", "spearman"),
    accepts=_accepts,
    form="numbers",
    encode=_encode,
    decode=lambda outputs, labels, threshold: outputs[:, 0],
    answer=_answer,
    difference=_difference,
    measure="absolute",
    brief=lambda answer: f"{answer['score']:.4g}",
    settings=("range", "soft_label"),
    soft=_soft,
    soft_column=soft_written.numbers,
    nothing=lambda targets, labels: targets == -1,
    nothing_is="the label -1",
    read=read_numbers,
)
