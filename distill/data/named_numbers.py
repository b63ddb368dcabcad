"""Columns of numbers of classes, and the columns beside them that have their names: as text, in lists, or in the
objects of SageMaker's manifests. Without torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distill import config
from distill.data.task_types.task_type import as_list, distinct, is_list, is_number, is_text, one_array
from distill.data.task_types.written import names, whole
from distill.data.usual_columns import LABELS, SAMPLE, TAGS

NAMES = ("text", "name", "names", "str", "string")
"""Ends of the name of a column with the names of the numbers in another one, as SetFit's `label_text` beside
`label`."""
_METADATA, _CLASS, _CLASSES = "-metadata", "class-name", "class-map"
"""End of the name of SageMaker's column about a label, and keys of its objects: the name of a number, and the names of
several."""


def name_columns(label: str) -> list[str]:
    """Names, in lower case, of a column with the names of the numbers in a column of labels."""
    usual = (f"{label.lower()}{mark}{end}" for end in NAMES for mark in "_ -")
    return [*usual, f"{label.lower()}{_METADATA}"]


def columns_beside(settings: config.Task, rows: pa.Table) -> Iterator[tuple[str, str]]:
    """(column of numbers, column that may have their names), by their names and types."""
    lower = {name.lower(): name for name in rows.column_names}
    stated = [str(each).lower() for each in as_list(settings.label)]
    for label in stated or (*LABELS, *TAGS) if len(stated) < 2 else ():
        if label not in lower:
            continue
        column = rows[lower[label]].type
        # `topic_text` beside `topic` is more likely the text than a name, but not if both are lists.
        known = name_columns(label) if stated or label == "label" or is_list(column) else [f"{label}{_METADATA}"]
        for other in known:
            beside = lower.get(other)
            if beside is not None and beside not in (settings.text, settings.text_pair):
                if fit(column, rows[beside].type):
                    yield lower[label], beside


def fit(numbers: pa.DataType, beside: pa.DataType) -> bool:
    """Whether columns of these types may be numbers and their names."""
    if is_list(numbers):
        of_lists = is_list(beside) and is_text(beside.value_type)
        return pa.types.is_integer(numbers.value_type) and (of_lists or _maps(beside))
    return (is_text(numbers) or is_number(numbers)) and (is_text(beside) or is_text(_inside(beside, _CLASS)))


def _inside(data_type: pa.DataType, key: str) -> pa.DataType:
    """The type of a key in objects; null without it."""
    place = data_type.get_field_index(key) if pa.types.is_struct(data_type) else -1
    return pa.null() if place < 0 else data_type.field(place).type


def _maps(data_type: pa.DataType) -> bool:
    """Whether objects have a name for each number."""
    inner = _inside(data_type, _CLASSES)
    return pa.types.is_struct(inner) and all(is_text(field.type) for field in inner)


def _of(column: pa.ChunkedArray, key: str) -> pa.ChunkedArray:
    return pc.struct_field(column, [column.type.get_field_index(key)])


def vary(columns: Iterable[pa.ChunkedArray]) -> bool:
    """Whether lists of names, in the columns of several tables, differ between rows. Those of all labels beside a 0 or
    1 for each do not. True for columns of anything else."""
    lists = [column for column in columns if is_list(column.type)]
    rows = {tuple(row) for column in lists for row in column.slice(0, SAMPLE).to_pylist() if row}
    return not lists or len(rows) > 1


def pairs_in(numbers: pa.ChunkedArray, beside: pa.ChunkedArray) -> pa.Table | None:
    """Numbers and names as text, of columns whose types fit; None for lists of different lengths."""
    if is_list(numbers.type) and _maps(beside.type):
        maps = _of(beside, _CLASSES)
        found = {field.name: distinct(_of(maps, field.name)) for field in maps.type}
        pairs = [(number, name) for number, several in found.items() for name in several]
        columns = [pa.array([pair[side] for pair in pairs], pa.string()) for side in (0, 1)]
        return pa.table(columns, ["number", "name"])
    if pa.types.is_struct(beside.type):
        beside = _of(beside, _CLASS)
    if is_list(numbers.type):
        sizes, others = (pc.fill_null(pc.list_value_length(each), -1) for each in (numbers, beside))
        if not pc.all(pc.equal(sizes, others)).as_py():
            return None
        numbers, beside = pc.list_flatten(numbers), pc.list_flatten(beside)
    return pa.table([whole(names(numbers)), names(beside).cast(pa.string())], ["number", "name"])


def renamed(column: pa.ChunkedArray, found: Mapping[int, str]) -> pa.ChunkedArray:
    """The names of numbers [rows], or of the numbers in lists; null for -1, and another number as it stands."""
    if is_list(column.type):
        lists = one_array(column)
        ends = np.r_[0, np.cumsum(np.asarray(pc.fill_null(pc.list_value_length(lists), 0)))]
        values = one_array(renamed(pa.chunked_array([lists.flatten()]), found))
        mask = lists.is_null() if lists.null_count else None
        return pa.chunked_array([pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values, mask=mask)])
    given = whole(names(column))
    numbers = pc.index_in(given, value_set=pa.array([*map(str, found)]))
    without = pc.if_else(pc.equal(given, "-1"), pa.scalar(None, given.type), given)
    return pc.coalesce(pc.take(pa.array([*found.values()], given.type), numbers), without)
