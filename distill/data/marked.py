"""Texts with spans of characters, and answers in their contexts, as their writer meant them: see
`distill.data.task_types.offsets`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distill.data.task_types import Columns, Where
from distill.data.task_types.offsets import ENDS, STARTS, TYPES, UNITS, Span, characters, check, counted, moved, plain
from distill.data.task_types.question_answering import IMPOSSIBLE, START, YES, number_of, pairs_of
from distill.data.task_types.question_answering import with_places as are_placed
from distill.data.task_types.task_type import is_list, is_number, is_text
from distill.data.task_types.token_classification import is_spans
from distill.data.task_types.words import words_of
from distill.errors import DataError

_SPANS = pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64()), ("label", pa.string())]))
_CHARACTERS = "characters"
_ANSWERS = pa.list_(pa.struct([("text", pa.string()), (START, pa.int64())]))
_AT_ONCE = 1024
"""Rows whose texts are in memory at once."""


def with_places(rows: pa.Table, columns: Columns, where: Where) -> tuple[pa.Table, list[str]]:
    """The rows with `start`, `end` and `label` for each span, by characters, and what is to be said about them. Of
    answers, the places are by characters too.

    Raises DataError for a span whose own text is not at its place, and for places that may count characters or UTF-16
    units.
    """
    if columns.kind.extractive:
        return _in_characters(rows, columns, where)
    label = columns.label[0]
    if not columns.kind.per_token or not is_spans(rows[label].type) or not is_text(rows[columns.text[0]].type):
        return rows, []
    texts = [text or "" for text in rows[columns.text[0]].to_pylist()]
    marked = [
        None if spans is None else [plain(span, where(row), text) for span in spans]
        for row, (text, spans) in enumerate(zip(texts, rows[label].to_pylist(), strict=True))
    ]
    marked = _worded(texts, rows[label].to_pylist(), marked)
    marked, remarks = _ended(texts, marked, label)
    unit = _unit(texts, marked, where)
    found = [None if spans is None else moved(text, spans, unit) for text, spans in zip(texts, marked, strict=True)]
    if unit != "characters":
        remarks.append(f"the places of spans in {label} count {unit}, in which all spans have their words")
    pairs = [pair for own, new in zip(marked, found, strict=True) for pair in zip(own or (), new or (), strict=True)]
    cut = sum(new["end"] - new["start"] != own["end"] - own["start"] for own, new in pairs)
    if cut and unit == "characters":
        remarks.append(f"{cut:,} spans in {label} begin or end with spaces, which are cut off")
    place = rows.column_names.index(label)
    return rows.set_column(place, label, pa.chunked_array([pa.array(found, _SPANS)])), remarks


def of_lists(column: pa.ChunkedArray, name: str, where: Where, is_label: bool) -> pa.ChunkedArray | None:
    """Spans [rows] as lists of objects, of a column of objects with lists of starts, ends and types, as the library
    datasets stores them; None for any other column.

    Raises DataError for an object of the label with lists of different lengths. Other columns that have such lists, as
    the headers of a message do, are none of spans.
    """
    types = {key.name: key.type for key in column.type} if pa.types.is_struct(column.type) else {}
    if not _are_spans(types):
        return None
    spans = []
    for row, cell in enumerate(column.to_pylist()):
        given = {key: values for key, values in (cell or {}).items() if values is not None}
        sizes = {key: len(values) for key, values in given.items()}
        if len({*sizes.values()}) > 1:
            if not is_label:
                return None
            shown = ", ".join(f"{size} in {key}" for key, size in sizes.items())
            raise DataError(
                f"{where(row)}: got lists of different lengths in {name}, {shown}; must have a value for each span; "
                "correct the row"
            )
        each = zip(*given.values(), strict=True)
        spans.append([dict(zip(given, values, strict=True)) for values in each] if given else None)
    item = pa.struct([(key, data_type.value_type) for key, data_type in types.items()])
    return pa.chunked_array([pa.array(spans, pa.list_(item))])


def _are_spans(types: Mapping[str, pa.DataType]) -> bool:
    """Whether objects with keys of these types have lists with a start, an end and a type for each span."""
    if not all(map(is_list, types.values())):
        return False
    items = {key: each.value_type for key, each in types.items()}
    places = all(any(_is_place(items[key]) for key in keys if key in items) for keys in (STARTS, ENDS))
    return places and any(_is_type(items[key]) for key in TYPES if key in items)


def _is_place(item: pa.DataType) -> bool:
    return is_number(item) or pa.types.is_null(item)


def _is_type(item: pa.DataType) -> bool:
    return is_text(item) or pa.types.is_integer(item) or pa.types.is_null(item) or is_list(item)


def _worded(
    texts: list[str], given: list[list[Span] | None], marked: list[list[Span] | None]
) -> list[list[Span] | None]:
    """The spans with their words as text, if they have them under another name than the usual ones, at their places."""
    spans = [span for row in given for span in row or ()]
    if not spans or any(span["text"] is not None for row in marked for span in row or ()):
        return marked
    for name in sorted({name for span in spans for name, value in span.items() if isinstance(value, str)}):
        words = [None if row is None else [span.get(name) for span in row] for row in given]
        found = [
            None if row is None else [{**span, "text": word} for span, word in zip(row, of or (), strict=True)]
            for row, of in zip(marked, words, strict=True)
        ]
        whole = all(isinstance(span["text"], str) for row in found for span in row or ())
        longer = [None if row is None else [{**span, "end": span["end"] + 1} for span in row] for row in found]
        if whole and (counted(texts, found, _edges) or counted(texts, longer, _edges)):
            return found
    return marked


def _ended(texts: list[str], marked: list[list[Span] | None], label: str) -> tuple[list[list[Span] | None], list[str]]:
    """The spans with ends behind their last characters, and a remark if their ends are these: all spans state their
    words, and have them so alone."""
    if not all(span["text"] is not None for spans in marked for span in spans or ()) or counted(texts, marked, _edges):
        return marked, []
    longer = [None if spans is None else [{**span, "end": span["end"] + 1} for span in spans] for spans in marked]
    if not counted(texts, longer, _edges):
        return marked, []
    return longer, [f"the ends of spans in {label} are their last characters, with which all spans have their words"]


def _unit(texts: list[str], marked: list[list[Span] | None], where: Where) -> str:
    fits = counted(texts, marked, _edges)
    stated = any(span["text"] is not None for spans in marked for span in spans or ())
    if not fits:
        check(texts, marked, where)
        return "characters"  # refused with its row
    if not stated and {"characters", "UTF-16 units"} <= {*fits}:
        for row, (text, spans) in enumerate(zip(texts, marked, strict=True)):
            if spans and moved(text, spans, "UTF-16 units") != moved(text, spans, "characters"):
                raise DataError(
                    f"{where(row)}: got spans that fit words whether their places count characters or UTF-16 units, in "
                    "which an emoji is two; must be known; add the words of each span as its text"
                )
    return fits[0]


def _edges(text: str) -> tuple[set[int], set[int]]:
    words = words_of(text)
    return {start for start, _ in words}, {end for _, end in words}


def _in_characters(rows: pa.Table, columns: Columns, where: Where) -> tuple[pa.Table, list[str]]:
    """The rows with places that count characters, and what is to be said about them.

    They are changed only if not all answers are at their places, and all are in one other unit alone.
    """
    context, label = columns.text[1], columns.label[0]
    if not are_placed(rows, label) or not is_text(rows[context].type):
        return rows, []

    def fits(unit: str) -> bool:
        return all(_fit(text, found, unit) for text, found in _placed(rows, columns, where))

    units = [] if fits(_CHARACTERS) else [unit for unit in UNITS if unit != _CHARACTERS and fits(unit)]
    if len(units) != 1:
        return rows, []
    places = pa.chunked_array([pa.array([*_moved(rows, columns, where, units[0])], _ANSWERS)])
    rows = rows.set_column(rows.column_names.index(label), label, places)
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
