"""The texts of a folder of BEIR or MTEB, by their ids: documents with their titles, or queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distill.data.files import Table
from distill.data.several_types import check_types
from distill.data.task_types.task_type import is_text
from distill.errors import DataError

IDS = ("_id", "id")
"""Names of the column of ids."""

_AT_ONCE = 4096
"""Texts that are compared at once."""


@dataclass(frozen=True)
class Texts:
    """The texts of a file or files, by their row."""

    ids: pa.ChunkedArray
    texts: Sequence[tuple[pa.ChunkedArray, ...]]
    """Columns whose texts are put together, of each part of the rows."""
    starts: np.ndarray
    """First row of each part."""
    files: str

    def rows_of(self, wanted: pa.Array) -> np.ndarray:
        """[n] the row with each of these ids, which all differ; -1 where there is none. Of rows with one id and
        one text, as where MTEB has a corpus for each split, the first. DataError for an id of two texts."""
        number = pc.fill_null(pc.index_in(self.ids, value_set=wanted), -1).to_numpy()
        given = np.flatnonzero(number >= 0)
        rows = np.full(len(wanted), -1, np.int64)
        rows[number[given[::-1]]] = given[::-1]
        again = given[rows[number[given]] != given]
        for start in range(0, len(again), _AT_ONCE):
            part = again[start : start + _AT_ONCE]
            other = pc.index(pc.not_equal(self.take(part), self.take(rows[number[part]])), True).as_py()
            if other >= 0:
                raise DataError(
                    f"{self.files}: got two rows with the id {self.ids[int(part[other])].as_py()!r}; must be one "
                    "for each id, or rows of one text; remove or rename one"
                )
        return rows

    def take(self, rows: np.ndarray) -> pa.Array:
        """The texts of these rows, in this order: the title, if there is one, and the text, as BEIR joins them."""
        if not len(rows):
            return pa.array([], pa.string())
        order = np.argsort(rows, kind="stable")
        part = np.searchsorted(self.starts, rows[order], side="right") - 1
        found = []
        for number, of_part in zip(*_grouped(part, rows[order]), strict=True):
            inside = pa.array(of_part - self.starts[number])
            found.append(joined([column.take(inside) for column in self.texts[number]]))
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return pa.concat_arrays(found).take(pa.array(back))


def joined(columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Array | pa.ChunkedArray:
    """The texts of each row as one, as BEIR joins title and text."""
    whole = [pc.fill_null(column, "") for column in columns]
    return pc.utf8_trim_whitespace(whole[0] if len(whole) == 1 else pc.binary_join_element_wise(*whole, " "))


def _grouped(numbers: np.ndarray, values: np.ndarray) -> tuple[list[int], list[np.ndarray]]:
    """The different numbers [n], which are in order, and the values [n] of each."""
    distinct, starts = np.unique(numbers, return_index=True)
    return distinct.tolist(), np.split(values, starts[1:])


def texts_in(table: Table, name: str) -> Texts:
    """The texts of the table of this name. Documents may have a title."""
    rows, where = table.rows, ", ".join(table.files)
    column = next((each for each in IDS if each in rows.column_names), None)
    if column is None or "text" not in rows.column_names:
        raise DataError(
            f"{where}: got columns {', '.join(rows.column_names)}; must have _id and text, as the {name} of BEIR; "
            "rename them"
        )
    titled = name == "corpus" and "title" in rows.column_names and not pa.types.is_null(rows["title"].type)
    columns = ["title", "text"] if titled else ["text"]
    check_types(rows, columns)
    for each in columns:
        if not is_text(rows[each].type):
            raise DataError(f"{where}: got {rows[each].type} in column {each}; must be text; convert it")
    parts = rows.select([column, *columns]).to_batches()
    ids = pa.chunked_array([ids_of(part[column], where) for part in parts], pa.string())
    starts = np.cumsum([0, *(part.num_rows for part in parts[:-1])])
    return Texts(ids, [tuple(part[each].cast(pa.string()) for each in columns) for part in parts], starts, where)


def is_id(data_type: pa.DataType) -> bool:
    """Whether a column of this type may hold ids."""
    return is_text(data_type) or pa.types.is_integer(data_type)


def ids_of(column: pa.Array | pa.ChunkedArray, where: str) -> pa.Array:
    """Ids as text; numbers too, as JSON and parquet may have them."""
    if not is_id(column.type):
        raise DataError(f"{where}: got ids of the type {column.type}; must be text; write them as text")
    return column.cast(pa.string())
