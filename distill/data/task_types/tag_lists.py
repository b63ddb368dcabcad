"""Lists of tags as Arrow stores them: a dictionary of names, and a number for each word. Without torch."""

from __future__ import annotations

import numpy as np

from distill.data import arrow as pa
from distill.data import arrow_compute as pc
from distill.data.task_types.task_type import distinct, one_array


def list_of(column: pa.ChunkedArray) -> pa.Array:
    """A column of lists as one array."""
    values = one_array(column)
    return values.cast(pa.list_(values.type.value_type))


def sizes_of(lists: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(lists.value_lengths(), 0)).astype(np.int64)


def lists_of(values: np.ndarray | pa.Array, sizes: np.ndarray) -> pa.Array:
    return pa.ListArray.from_arrays(np.r_[0, np.cumsum(sizes)].astype(np.int32), pa.array(values))


def tags_of(numbers: np.ndarray, sizes: np.ndarray, names: pa.Array) -> pa.Array:
    """Lists of tags, of their numbers [words] in `names`; null for -1."""
    indices = pa.array(numbers.astype(np.int32), mask=numbers < 0)
    return lists_of(pa.DictionaryArray.from_arrays(indices, names), sizes)


def with_nulls(made: pa.Array, lists: pa.Array) -> pa.Array:
    """Lists, null where others of the same sizes are."""
    return pc.if_else(lists.is_valid(), made, pa.scalar(None, made.type)) if lists.null_count else made


def names_of(column: pa.ChunkedArray) -> set[str]:
    return {*distinct(column.combine_chunks().flatten())}
