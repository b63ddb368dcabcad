"""Stored vectors as soft labels, which stand in for the outputs of a teacher that embeds. Without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from distill.data import arrow as pa
from distill.data import arrow_compute as pc
from distill.data.task_types.soft import from_text
from distill.data.task_types.task_type import Where, is_list, is_number
from distill.errors import DataError


def unit_vectors(column: pa.ChunkedArray, numbers: Mapping[str, int], where: Where, name: str) -> np.ndarray:
    """[n, 2 D] the vectors of both texts of each row, side by side and each of length 1, float32; NaN for a row without
    (null). D is the number of components of the first row's vectors.

    Args:
        column: for each row a list of two lists of numbers, or the JSON text of this, or a list of two such texts.
        numbers: not used: vectors have no labels.
        name: name of the column, for messages.

    Raises:
        DataError: for the first row with anything else, with a vector of another length than the first row's, or with a
            vector that has no direction: of zeros, or with a number that is not finite.
    """
    found = _at_once(column)
    given, values = _by_row(column, where, name) if found is None else found
    if not len(given):
        raise DataError(f"{where(0)}: got no vector in {name}; must be in one row or more; name another column")
    with np.errstate(over="ignore"):  # refused below
        lengths = np.linalg.norm(values, axis=2)
    bad = ~(np.isfinite(lengths) & (lengths > 0)).all(axis=1)
    if bad.any():
        row = int(given[np.flatnonzero(bad)[0]])
        raise DataError(
            f"{where(row)}: got a vector in {name} of zeros, or with a number that is not finite; must have a "
            "direction, which a student can learn; leave the row empty, or embed its texts again"
        )
    result = np.full((len(column), values.shape[2] * 2), np.nan, np.float32)
    result[given] = (values / lengths[:, :, None]).reshape(len(given), -1)
    return result


def _at_once(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray] | None:
    """Numbers of the rows that have vectors, and these [rows, 2, D], of a column of lists of lists of numbers that are
    all of one size: row by row, large files take minutes. None for any other column."""
    if not (is_list(column.type) and is_list(column.type.value_type) and is_number(column.type.value_type.value_type)):
        return None
    vectors = pc.list_flatten(column)
    sizes, numbers = pc.list_value_length(vectors), pc.list_flatten(vectors)
    pairs = pc.drop_null(pc.list_value_length(column))
    given = np.flatnonzero(pc.is_valid(column).to_numpy())
    alike = len(pc.unique(sizes)) == 1 and pc.unique(pairs).to_pylist() == [2] and len(vectors) == 2 * len(given)
    if not alike or sizes.null_count or numbers.null_count or not len(numbers):
        return None
    values = numbers.to_numpy()
    # Vectors of many rows may not fit into memory twice.
    return given, (values if values.dtype == np.float32 else values.astype(np.float64)).reshape(len(given), 2, -1)


def _by_row(column: pa.ChunkedArray, where: Where, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The same, of any column. Raises DataError for the first row without two vectors of the usual size."""
    given, result = list[int](), list[np.ndarray]()
    for row, cell in enumerate(column):
        value = from_text(cell.as_py())
        if value is None:
            continue
        pair = [from_text(part) for part in value] if isinstance(value, list) else []
        if None in pair:
            continue
        if len(pair) != 2 or not all(map(_is_vector, pair)):
            raise DataError(
                f"{where(row)}: got {value!r}"[:200] + f" in {name}; must be two lists of numbers, the vectors of both "
                "texts, or of rows with one text a list of numbers; correct the row"
            )
        size = result[0].shape[1] if result else len(pair[0])
        if wrong := [len(vector) for vector in pair if len(vector) != size]:
            raise DataError(
                f"{where(row)}: got a vector of {wrong[0]} numbers in {name}; must be of {size}, as in the rows before "
                "it; embed all texts with one model"
            )
        given.append(row)
        result.append(_numbers(pair))
    return np.array(given, np.int64), np.stack(result) if result else np.zeros((0, 2, 0), np.float32)


def _numbers(pair: list[list[float]]) -> np.ndarray:
    """[2, D]; infinite where float32 cannot hold a number."""
    try:
        with np.errstate(over="ignore"):
            return np.asarray(pair, np.float32)
    except OverflowError:  # an integer that no float can hold
        return np.full((2, len(pair[0])), np.inf, np.float32)


def _is_vector(value: Any) -> bool:
    plain = isinstance(value, list) and len(value) > 0
    return plain and all(isinstance(part, int | float) and not isinstance(part, bool) for part in value)


__all__ = ["unit_vectors"]
