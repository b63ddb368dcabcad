"""What a column of a file states about another one: names of the numbers in it, and that a text has no spans. Without
torch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from distill import config
from distill.data.about import About
from distill.data.decisions import checked
from distill.data.files import Table
from distill.data.labels import Labels
from distill.data.task_types import TASK_TYPES
from distill.data.task_types.classification import CLASSIFICATION
from distill.data.task_types.task_type import Columns, as_list, is_number, is_text
from distill.data.task_types.token_classification import is_spans
from distill.data.task_types.written import names as label_names
from distill.data.task_types.written import spelled_alike, whole
from distill.errors import ConfigError, DataError
from distill.runtime.quoting import setting

NAMES = ("text", "name", "names", "str", "string")
"""Ends of the name of a column with the names of the numbers in another one, as SetFit's `label_text` beside
`label`."""
MOST_CLASSES = 1000
MOST = 0.8
"""Columns have a name for each number if so large a share of the rows has the usual name of its number."""


def name_columns(label: str) -> list[str]:
    """Names, in lower case, of a column with the names of the numbers in a column of labels."""
    return [f"{label.lower()}{mark}{end}" for end in NAMES for mark in "_ -"]


def with_names(settings: config.Task, tables: Mapping[str, Table], notes: list[str], name: str) -> dict[str, Table]:
    """The tables with names in place of the numbers of classes, if the first one has another column with the names."""
    listed = {*map(str, settings.labels or ())}
    wanted = settings.kind in (None, *(kind.name for kind in TASK_TYPES.values() if kind.named))
    beside = _names_beside(settings, [table.rows for table in tables.values()]) if wanted else None
    if beside is None or (listed and listed <= {*map(str, beside[2])}):
        return dict(tables)
    label, other, found = beside
    notes.append(f"{name}: the numbers in {label} have the names in {other}: {_pairs(found)}")
    parts = [table.rows[label] for table in tables.values() if label in table.rows.column_names]
    if count := sum(int(pc.sum(pc.equal(whole(label_names(part)), "-1")).as_py() or 0) for part in parts):
        notes.append(f"{name}: {count:,} rows whose {label} is -1 have no label")
    return {split: _named(table, label, found) for split, table in tables.items()}


def _names_beside(settings: config.Task, tables: Sequence[pa.Table]) -> tuple[str, str, dict[int, str]] | None:
    """(column of numbers, column of their names, number -> name in order); None without such columns.

    Raises:
        DataError: for numbers with several names.
    """
    rows = tables[0]
    wanted = [str(each) for each in as_list(settings.label)] or ["label"]
    label = next((name for name in rows.column_names if [name.lower()] == [each.lower() for each in wanted]), None)
    if label is None or not (is_text(rows[label].type) or is_number(rows[label].type)):
        return None
    lower = {name.lower(): name for name in rows.column_names}
    others = map(lower.get, name_columns(label))
    other = next((each for each in others if each is not None and is_text(rows[each].type)), None)
    if other is None or other in (settings.text, settings.text_pair):
        return None
    every = [each for each in tables if {label, other} <= {*each.column_names} and is_text(each[other].type)]
    parts = [[whole(label_names(each[label])), label_names(each[other]).cast(pa.string())] for each in every]
    columns = pa.concat_tables([pa.table(part, ["number", "name"]) for part in parts])
    counted = columns.group_by(["number", "name"]).aggregate([([], "count_all")]).slice(0, MOST_CLASSES + 1).to_pylist()
    pairs = [each for each in counted if each["number"] not in (None, "-1")]
    if not all(re.fullmatch("[0-9]{1,9}", each["number"]) for each in pairs):
        return None
    named: dict[int, dict[str, str]] = {}
    usual = 0
    for each in sorted(pairs, key=lambda each: -each["count_all"]):
        if each["name"] is not None:  # the usual spelling comes first
            spelled = named.setdefault(int(each["number"]), {})
            spelled.setdefault(spelled_alike(each["name"]), each["name"])
            usual += each["count_all"] * (next(iter(spelled)) == spelled_alike(each["name"]))
    if usual >= MOST * sum(each["count_all"] for each in pairs):
        _check_one(label, other, named)
    if len(named) < 2 or any(len(each) > 1 for each in named.values()):
        return None
    if len(named) < len({each["number"] for each in pairs}):  # a number without a name
        return None
    found = {number: next(iter(named[number].values())) for number in sorted(named)}
    if len({*map(spelled_alike, found.values())}) < len(found) or any(v.lstrip("-").isdigit() for v in found.values()):
        return None
    return label, other, found


def _check_one(label: str, other: str, named: Mapping[int, Mapping[str, str]]) -> None:
    """Raise DataError for a number with two names, in columns that have one for each number in most rows."""
    several = next(((number, [*names.values()]) for number, names in named.items() if len(names) > 1), None)
    if several is not None and len({next(iter(names)) for names in named.values()}) == len(named) > 1:
        number, (one, two, *_) = several
        raise DataError(
            f"{label} and {other}: got {number} beside {one!r} and beside {two!r}; must be one name for each number; "
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


def _named(table: Table, label: str, found: Mapping[int, str]) -> Table:
    if label not in table.rows.column_names:
        return table
    given = whole(label_names(table.rows[label]))
    numbers = pc.index_in(given, value_set=pa.array([*map(str, found)]))
    names = tuple(found.values())
    without = pc.if_else(pc.equal(given, "-1"), pa.scalar(None, given.type), given)
    named = pc.coalesce(pc.take(pa.array(names, given.type), numbers), without)
    rows = table.rows.set_column(table.rows.column_names.index(label), label, named)
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
