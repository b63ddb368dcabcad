"""What a column of a file states about another one: names of the numbers in it, as text, in lists or in the objects of
SageMaker's manifests, and that a text has no spans. Without torch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distill import config
from distill.data.about import About
from distill.data.decisions import checked
from distill.data.files import Table
from distill.data.labels import Labels
from distill.data.task_types import TASK_TYPES
from distill.data.task_types.classification import CLASSIFICATION
from distill.data.task_types.task_type import Columns, as_list, distinct, is_list, is_number, is_text, one_array
from distill.data.task_types.token_classification import is_spans
from distill.data.task_types.written import names as label_names
from distill.data.task_types.written import spelled_alike, whole
from distill.data.usual_columns import LABELS, SAMPLE, TAGS
from distill.errors import ConfigError, DataError
from distill.runtime.quoting import setting

NAMES = ("text", "name", "names", "str", "string")
"""Ends of the name of a column with the names of the numbers in another one, as SetFit's `label_text` beside
`label`."""
_METADATA, _CLASS, _CLASSES = "-metadata", "class-name", "class-map"
"""End of the name of SageMaker's column about a label, and keys of its objects: the name of a number, and the names of
several."""
MOST_CLASSES = 1000
MOST = 0.8
"""Columns have a name for each number if so large a share of the rows has the usual name of its number."""


def with_names(settings: config.Task, tables: Mapping[str, Table], notes: list[str], name: str) -> dict[str, Table]:
    """The tables with names in place of the numbers of classes, if the first one has another column with the names."""
    listed = {*map(str, settings.labels or ())}
    wanted = settings.kind in (None, *(kind.name for kind in TASK_TYPES.values() if kind.named))
    beside = _names_beside(settings, [*tables.values()]) if wanted else None
    if beside is None or (listed and listed <= {*map(str, beside[2])}):
        return dict(tables)
    label, other, found = beside
    notes.append(f"{name}: the numbers in {label} have the names in {other}: {_pairs(found)}")
    parts = [table.rows[label] for table in tables.values() if label in table.rows.column_names]
    parts = [part for part in parts if not is_list(part.type)]
    if count := sum(int(pc.sum(pc.equal(whole(label_names(part)), "-1")).as_py() or 0) for part in parts):
        notes.append(f"{name}: {count:,} rows whose {label} is -1 have no label")
    return {split: _named(table, label, other, found) for split, table in tables.items()}


def _names_beside(settings: config.Task, tables: Sequence[Table]) -> tuple[str, str, dict[int, str]] | None:
    """(column of numbers, column of their names, number -> name in order); None without such columns.

    Raises:
        DataError: for numbers with several names.
    """
    for label, other in _columns_beside(settings, tables[0].rows):
        both = [table for table in tables if {label, other} <= {*table.rows.column_names}]
        every = [(table.rows[label], table.rows[other]) for table in both]
        every = [pair for pair in every if _fit(pair[0].type, pair[1].type)]
        parts = [_pairs_in(*pair) for pair in every]
        pairs = [part for part in parts if part is not None]
        if len(pairs) == len(parts) and _vary(names for _, names in every):
            files = ", ".join(file for table in both for file in table.files)
            place = None if is_list(every[0][0].type) else f"{files}, {label} and {other}"
            found = _names_in(pa.concat_tables(pairs), place)
            if found is not None:
                return label, other, found
    return None


def _names_in(columns: pa.Table, place: str | None) -> dict[int, str] | None:
    """Number -> name in order, of pairs of these; None if a number has no name, or several.

    `place`: of the columns, for messages; None for lists, which may have their numbers and names in different orders.
    """
    counted = columns.group_by(["number", "name"]).aggregate([([], "count_all")])
    if counted.num_rows > MOST_CLASSES:
        return None
    missing = "" if place is None else "-1"
    pairs = [each for each in counted.to_pylist() if each["number"] not in (None, missing)]
    if not all(re.fullmatch("[0-9]{1,9}", each["number"]) for each in pairs):
        return None
    named: dict[int, dict[str, str]] = {}
    usual = 0
    for each in sorted(pairs, key=lambda each: -each["count_all"]):
        if each["name"] is not None:  # the usual spelling comes first
            spelled = named.setdefault(int(each["number"]), {})
            spelled.setdefault(spelled_alike(each["name"]), each["name"])
            usual += each["count_all"] * (next(iter(spelled)) == spelled_alike(each["name"]))
    if place is not None and usual >= MOST * sum(each["count_all"] for each in pairs):
        _check_one(place, named)
    if len(named) < 2 or any(len(each) > 1 for each in named.values()):
        return None
    if len(named) < len({each["number"] for each in pairs}):  # a number without a name
        return None
    found = {number: next(iter(named[number].values())) for number in sorted(named)}
    if len({*map(spelled_alike, found.values())}) < len(found) or any(v.lstrip("-").isdigit() for v in found.values()):
        return None
    return found


def _check_one(place: str, named: Mapping[int, Mapping[str, str]]) -> None:
    """Raise DataError for a number with two names, in columns that have one for each number in most rows."""
    several = next(((number, [*names.values()]) for number, names in named.items() if len(names) > 1), None)
    if several is not None and len({next(iter(names)) for names in named.values()}) == len(named) > 1:
        number, (one, two, *_) = several
        raise DataError(
            f"{place}: got {number} beside {one!r} and beside {two!r}; must be one name for each number; "
            "correct the rows, or remove the column that is wrong"
        )


def check_numbers(rows: pa.Table, columns: Columns, labels: Labels, key: str) -> None:
    """Check that no other column has the names of labels beside other numbers than theirs, where files have numbers in
    place of the names.

    Raises:
        ConfigError: for a column with such names.
    """
    names, numbers = labels.names, tuple(map(str, range(len(labels.names))))
    if columns.kind is not CLASSIFICATION or labels.spelled != numbers or names == numbers:
        return
    label, others = columns.label[0], {*rows.column_names} - {*columns.text, *columns.label}
    known = {spelled_alike(name): number for number, name in enumerate(names)}
    for other in (each for each in sorted(others) if is_text(rows[each].type)):
        if pc.count_distinct(rows[other]).as_py() > 2 * len(names):
            continue
        pairs = pa.table({"number": whole(label_names(rows[label])), "name": label_names(rows[other])})
        counted = pairs.group_by(["number", "name"]).aggregate([([], "count_all")]).to_pylist()
        found = _usual_names([each for each in counted if each["number"] in numbers])
        places = {number: known[name] for number, name in found.items() if name in known}
        wrong = next(((n, place) for n, place in sorted(places.items()) if n != str(place)), None)
        if wrong is not None and len({*places.values()}) == len(places) > 1:
            raise ConfigError(
                f"{key}.label: got {label}, in which {wrong[0]} is beside {names[wrong[1]]!r} in {other}, and the "
                f"teacher's output {wrong[0]} is {names[int(wrong[0])]}; must be names, as the numbers are in another "
                f"order; set {setting(f'{key}.label', other)}"
            )


def _usual_names(counted: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Number -> the name that is beside it in most rows, as from `spelled_alike`; without numbers that have none."""
    rows: dict[str, Counter[str]] = {}
    for each in counted:
        if each["name"] is not None:
            rows.setdefault(each["number"], Counter())[spelled_alike(each["name"])] += each["count_all"]
    best = {number: names.most_common(1)[0] for number, names in rows.items()}
    return {number: name for number, (name, count) in best.items() if count >= MOST * rows[number].total()}


def _named(table: Table, label: str, other: str, found: Mapping[int, str]) -> Table:
    if label not in table.rows.column_names:
        return table
    names = tuple(found.values())
    named = _renamed(table.rows[label], found)
    rows = table.rows.set_column(table.rows.column_names.index(label), label, named)
    if is_list(named.type) and other in rows.column_names:
        rows = rows.drop_columns([other])  # it would seem to have words, of which each has a tag
    about = table.about or (About(),) * len(table.files)
    return replace(
        table, rows=rows, about=tuple(replace(each, classes={**each.classes, label: names}) for each in about)
    )


def _pairs(found: Mapping[int, str]) -> str:
    shown = ", ".join(f"{number} is {name}" for number, name in islice(found.items(), 20))
    return shown + ", ..." * (len(found) > 20)


def with_empty_spans(table: Table, notes: list[str], name: str) -> Table:
    """The table with an empty list for a text without spans that a column states to be checked: it has none."""
    rows = table.rows
    for column in rows.column_names:
        if not is_spans(rows[column].type) or not rows[column].null_count:
            continue
        for other in rows.column_names:
            flags = checked(rows[other], other)
            missing = None if flags is None else pc.and_(flags, pc.is_null(rows[column]))
            if missing is None or not pc.any(missing).as_py():
                continue
            pairs = zip(missing.to_pylist(), rows[column].to_pylist(), strict=True)
            filled = [[] if empty else spans for empty, spans in pairs]
            array = pa.chunked_array([pa.array(filled, rows[column].type)])
            rows = rows.set_column(rows.column_names.index(column), column, array)
            count = int(pc.sum(missing).as_py())
            notes.append(f"{name}: {count:,} texts have no spans in {column}, as their {other} says that they are done")
    return table if rows is table.rows else replace(table, rows=rows)


def name_columns(label: str) -> list[str]:
    """Names, in lower case, of a column with the names of the numbers in a column of labels."""
    usual = (f"{label.lower()}{mark}{end}" for end in NAMES for mark in "_ -")
    return [*usual, f"{label.lower()}{_METADATA}"]


def _columns_beside(settings: config.Task, rows: pa.Table) -> Iterator[tuple[str, str]]:
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
                if _fit(column, rows[beside].type):
                    yield lower[label], beside


def _fit(numbers: pa.DataType, beside: pa.DataType) -> bool:
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


def _vary(columns: Iterable[pa.ChunkedArray]) -> bool:
    """Whether lists of names, in the columns of several tables, differ between rows. Those of all labels beside a 0 or
    1 for each do not. True for columns of anything else."""
    lists = [column for column in columns if is_list(column.type)]
    rows = {tuple(row) for column in lists for row in column.slice(0, SAMPLE).to_pylist() if row}
    return not lists or len(rows) > 1


def _pairs_in(numbers: pa.ChunkedArray, beside: pa.ChunkedArray) -> pa.Table | None:
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
    return pa.table([whole(label_names(numbers)), label_names(beside).cast(pa.string())], ["number", "name"])


def _renamed(column: pa.ChunkedArray, found: Mapping[int, str]) -> pa.ChunkedArray:
    """The names of numbers [rows], or of the numbers in lists; null for -1, and another number as it stands."""
    if is_list(column.type):
        lists = one_array(column)
        ends = np.r_[0, np.cumsum(np.asarray(pc.fill_null(pc.list_value_length(lists), 0)))]
        values = one_array(_renamed(pa.chunked_array([lists.flatten()]), found))
        mask = lists.is_null() if lists.null_count else None
        return pa.chunked_array([pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values, mask=mask)])
    given = whole(label_names(column))
    numbers = pc.index_in(given, value_set=pa.array([*map(str, found)]))
    without = pc.if_else(pc.equal(given, "-1"), pa.scalar(None, given.type), given)
    return pc.coalesce(pc.take(pa.array([*found.values()], given.type), numbers), without)
