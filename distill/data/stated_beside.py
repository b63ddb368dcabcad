"""What a column of a file states about another one: names of the numbers in it, and that a text has no spans. Without
torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from distill import config
from distill.data.about import About
from distill.data.decisions import checked
from distill.data.files import Table
from distill.data.task_types.task_type import as_list, is_number, is_text
from distill.data.task_types.token_classification import is_spans
from distill.data.task_types.written import names as label_names

NAMES = ("text", "name", "names", "str", "string")
"""Ends of the name of a column with the names of the numbers in another one, as SetFit's `label_text` beside
`label`."""
MOST_CLASSES = 1000


def name_columns(label: str) -> list[str]:
    """Names, in lower case, of a column with the names of the numbers in a column of labels."""
    return [f"{label.lower()}{mark}{end}" for end in NAMES for mark in "_ -"]


def with_names(settings: config.Task, tables: Mapping[str, Table], notes: list[str], name: str) -> dict[str, Table]:
    """The tables with names in place of the numbers of classes, if the first one has another column with the names."""
    first = next(iter(tables.values()))
    beside = _names_beside(settings, first.rows)
    if beside is None:
        return dict(tables)
    label, other, found = beside
    notes.append(f"{name}: the numbers in {label} have the names in {other}: {_pairs(found)}")
    return {split: _named(table, label, found) for split, table in tables.items()}


def _names_beside(settings: config.Task, rows: pa.Table) -> tuple[str, str, tuple[str, ...]] | None:
    """(column of numbers, column of their names, the names in the order of the numbers); None without such columns."""
    wanted = [str(each) for each in as_list(settings.label)] or ["label"]
    label = next((name for name in rows.column_names if [name.lower()] == [each.lower() for each in wanted]), None)
    if label is None or not (is_text(rows[label].type) or is_number(rows[label].type)):
        return None
    lower = {name.lower(): name for name in rows.column_names}
    others = map(lower.get, name_columns(label))
    other = next((each for each in others if each is not None and is_text(rows[each].type)), None)
    if other is None or other in (settings.text, settings.text_pair):
        return None
    columns = pa.table({"number": label_names(rows[label]), "name": label_names(rows[other])})
    pairs = columns.group_by(["number", "name"]).aggregate([]).slice(0, MOST_CLASSES + 1).to_pylist()
    named = {each["number"]: each["name"] for each in pairs if None not in each.values()}
    whole = len(named) == len(pairs) - sum(each == {"number": None, "name": None} for each in pairs)
    if not whole or len(named) < 2 or {*named} != {*map(str, range(len(named)))}:
        return None
    found = tuple(named[str(number)] for number in range(len(named)))
    if len({*found}) != len(found) or any(each.lstrip("-").isdigit() for each in found):
        return None
    return label, other, found


def _named(table: Table, label: str, found: tuple[str, ...]) -> Table:
    if label not in table.rows.column_names:
        return table
    given = label_names(table.rows[label])
    numbers = pc.index_in(given, value_set=pa.array([str(number) for number in range(len(found))]))
    named = pc.coalesce(pc.take(pa.array(found), numbers), given)
    rows = table.rows.set_column(table.rows.column_names.index(label), label, named)
    about = table.about or (About(),) * len(table.files)
    return replace(
        table, rows=rows, about=tuple(replace(each, classes={**each.classes, label: found}) for each in about)
    )


def _pairs(found: tuple[str, ...]) -> str:
    shown = ", ".join(f"{number} is {name}" for number, name in enumerate(found[:20]))
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
