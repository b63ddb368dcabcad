"""Places of answers in their contexts as their writer meant them: see `distill.data.task_types.offsets`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distill.data.task_types import Columns, Where
from distill.data.task_types.offsets import UNITS, characters
from distill.data.task_types.question_answering import IMPOSSIBLE, START, YES, number_of, pairs_of, with_places
from distill.data.task_types.task_type import is_text

_CHARACTERS = "characters"
_ANSWERS = pa.list_(pa.struct([("text", pa.string()), (START, pa.int64())]))
_AT_ONCE = 1024
"""Rows whose texts are in memory at once."""


def in_characters(rows: pa.Table, columns: Columns, where: Where) -> tuple[pa.Table, list[str]]:
    """The rows with places that count characters, and what is to be said about them.

    They are changed only if not all answers are at their places, and all are in one other unit alone.
    """
    context, label = columns.text[1], columns.label[0]
    if not with_places(rows, label) or not is_text(rows[context].type):
        return rows, []

    def fits(unit: str) -> bool:
        return all(_fit(text, found, unit) for text, found in _placed(rows, columns, where))

    units = [] if fits(_CHARACTERS) else [unit for unit in UNITS if unit != _CHARACTERS and fits(unit)]
    if len(units) != 1:
        return rows, []
    moved = pa.chunked_array([pa.array([*_moved(rows, columns, where, units[0])], _ANSWERS)])
    rows = rows.set_column(rows.column_names.index(label), label, moved)
    if START in rows.column_names and label != START:
        rows = rows.drop_columns([START])
    return rows, [f"the places of answers in {label} count {units[0]}, by which all of them are there"]


def _batches(rows: pa.Table, columns: Columns) -> Iterator[pa.RecordBatch]:
    wanted = dict.fromkeys((columns.text[1], columns.label[0], START, IMPOSSIBLE))
    return iter(rows.select([n for n in wanted if n in rows.column_names]).to_batches(max_chunksize=_AT_ONCE))


def _answers(row: dict[str, Any], columns: Columns, where: str) -> list[tuple[Any, int | None]] | None:
    """(text, place) of each answer of a row; None without a label."""
    own = (*columns.text, columns.label[0])
    if IMPOSSIBLE not in own and str(row.get(IMPOSSIBLE)).strip().lower() in YES:
        return []
    start = None if START in own or row.get(START) == "" else row.get(START)
    pairs = pairs_of(row[columns.label[0]], start, where)
    return None if pairs is None else [(text, number_of(first, where)) for text, first in pairs]


def _placed(rows: pa.Table, columns: Columns, where: Where) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """The contexts in which units differ, and their answers with places."""
    before = 0
    for batch in _batches(rows, columns):
        differ = pc.invert(pc.fill_null(pc.string_is_ascii(batch.column(columns.text[1])), True))
        for number, row in zip(np.flatnonzero(differ), batch.filter(differ).to_pylist(), strict=True):
            found = _answers(row, columns, where(before + int(number))) or []
            given = [(text, first) for text, first in found if isinstance(text, str) and text.strip()]
            yield row[columns.text[1]], [(text, first) for text, first in given if first is not None]
        before += batch.num_rows


def _fit(context: str, answers: list[tuple[str, int]], unit: str) -> bool:
    """Whether all answers are at their places in this unit."""
    if unit == _CHARACTERS:
        return all(first >= 0 and context.startswith(text, first) for text, first in answers)
    places = characters(context, unit) if answers else {}
    return all(first in places and context.startswith(text, places[first]) for text, first in answers)


def _moved(rows: pa.Table, columns: Columns, where: Where, unit: str) -> Iterator[list[dict[str, Any]] | None]:
    """The answers of each row as SQuAD's objects, with the characters at which they begin."""
    before = 0
    for batch in _batches(rows, columns):
        for number, row in enumerate(batch.to_pylist()):
            found, context = _answers(row, columns, where(before + number)), row[columns.text[1]] or ""
            places = {} if context.isascii() else characters(context, unit)
            yield None if found is None else [{"text": t, START: places.get(n, n) if n else n} for t, n in found]
        before += batch.num_rows
