"""Texts from files in fastText's form, a row in each line: `__label__billing __label__card My card is lost`.

A word with the prefix is a label wherever it stands, as for fastText. A file with one label in each row has classes,
and another has lists of labels.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from itertools import islice

import pyarrow as pa

from distill.data.about import About, about, with_about
from distill.data.lines import Malformed, chunks, lines
from distill.errors import DataError

SAMPLE = 200
"""Lines by which the form is recognized."""
NOTE = "its lines have labels as fastText writes them, such as __label__name, so its columns are text and label"
_LABEL = re.compile(r"(?<!\S)__label__(\S+)\s*", re.ASCII)
_LINE = re.compile(r"\s*__label__[^\s,;|]+\s+\S", re.ASCII)
"""How a line begins. After a label with a separator, columns may follow, of which fastText knows nothing."""


def is_fasttext(text: io.TextIOWrapper) -> bool:
    """Whether each of the first lines begins with a label, as no line of names does."""
    try:
        sample = next(chunks(islice((line for line in lines(text) if not line.isspace()), SAMPLE), len), [])
    except Malformed:
        return False
    return bool(sample) and all(map(_LINE.match, sample))


def batches(text: io.TextIOWrapper, name: str) -> Iterator[pa.RecordBatch]:
    """The rows in batches of one schema, `text` and `label`. DataError names the row that is malformed."""
    several = any(len(labels) > 1 for _, labels in _rows(text, name))
    text.seek(0)
    kind = pa.list_(pa.string()) if several else pa.string()
    schema = with_about(pa.schema([("text", pa.string()), ("label", kind)]), About((NOTE,)))
    for part in chunks(_rows(text, name), lambda row: len(row[0])):
        labels = [(found if several else found[0]) if found else None for _, found in part]
        yield pa.record_batch([pa.array([row for row, _ in part]), pa.array(labels, kind)], schema=schema)


def _rows(text: io.TextIOWrapper, name: str) -> Iterator[tuple[str, list[str]]]:
    """(text, its labels) of each line that is not blank."""
    row = 1
    try:
        for line in lines(text):
            if not line.isspace():
                yield _LABEL.sub("", line).strip(), [*dict.fromkeys(_LABEL.findall(line))]
                row += 1
    except Malformed as error:
        raise DataError(f"{name}, row {row}: {error}") from error


def in_lists(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """The tables of several files, in which the labels of a file in this form are lists if those of another file are:
    a file with one label in each row may be a part of rows with several."""
    several = any(pa.types.is_list(field.type) for table in tables for field in table.schema if field.name == "label")
    single = [several and about(t.schema).notes == (NOTE,) and pa.types.is_string(t["label"].type) for t in tables]
    return [_listed(table) if alone else table for table, alone in zip(tables, single, strict=True)]


def _listed(table: pa.Table) -> pa.Table:
    labels = [None if label is None else [label] for label in table["label"].to_pylist()]
    return table.set_column(table.column_names.index("label"), "label", pa.array(labels, pa.list_(pa.string())))
