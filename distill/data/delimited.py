"""Record batches of a CSV or TSV file: each value is text, as it stands in the file.

The standard library parses CSV in its strict mode: pyarrow accepts some quotes that are never closed, and then makes
one value of all lines after the quote.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from distill.data.about import About, with_about
from distill.data.lines import LONGEST, Malformed, check_names, chunks, lines, no_rows
from distill.data.quotes import quoted
from distill.data.separators import Dialect, records, separated
from distill.errors import DataError

COLUMNS = 10_000
"""A file with more columns is none of texts and labels."""

_CSV = (
    ("unexpected end of data", "got a quote that is not closed; must be closed; close it, or write it as two quotes"),
    ("expected after", "got text after a closing quote; must be a separator or a new line; write a quote in a value as "
     "two quotes, and the whole value in quotes"),
    ("field larger than", f"got a value of more than {LONGEST:,} characters; must be shorter; close the quote that it "
     "begins with, or shorten it"),
)  # fmt: skip
"""(part of an error's text of the standard library, ours)."""


@contextmanager
def _long_values() -> Iterator[None]:
    limit = csv.field_size_limit(LONGEST)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def batches(text: io.TextIOWrapper, name: str, usual: str | None, given: str | None) -> Iterator[pa.RecordBatch]:
    """The rows of a file in batches of one schema, which has the notes on how it is read.

    Args:
        usual: the separator of the file's extension; None if it has none.
        given: the separator of the settings; None without.

    Raises:
        DataError: for a malformed file, and for one that could be read in two ways.
    """
    with _long_values():
        dialect = separated(text, name, usual, given)
        text.seek(0)
        dialect = quoted(text, name, dialect)
        text.seek(0)
        records = _records(text, name, dialect)
        header = _header(next(records, []), name)
        schema = with_about(pa.schema([(column, pa.string()) for column in header]), About(dialect.notes))
        empty = True
        for rows in chunks(_of_width(records, len(header), name), _size):
            yield pa.record_batch([pa.array(column, pa.string()) for column in zip(*rows, strict=True)], schema=schema)
            empty = False
    if empty:
        raise no_rows(name)


def _size(record: Sequence[str]) -> int:
    return sum(map(len, record)) + len(record)


def _records(text: io.TextIOWrapper, name: str, dialect: Dialect) -> Iterator[list[str]]:
    """The header and the rows, without blank lines. DataError names the row."""
    row, source = 0, _Remembered(lines(text))
    try:
        for record in records(source, dialect):
            if record:
                source.check_end()
                yield record
                row += 1
    except (Malformed, csv.Error) as error:
        message = str(error)
        if isinstance(error, csv.Error):
            other = f"got {message!r}; must be CSV as in RFC 4180; correct the row"
            message = next((ours for part, ours in _CSV if part in message), other)
        place = f"{name}, row {row}" if row else f"{name}, header"
        raise DataError(f"{place}: {message}") from error


class _Remembered:
    """Lines, of which the last one is known."""

    def __init__(self, source: Iterator[str]) -> None:
        self.source, self.last = source, ""
        self.old: bool | None = None
        """Whether records end with a carriage return alone, as on an old Mac; None before the first."""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        self.last = next(self.source)
        return self.last

    def check_end(self) -> None:
        """Malformed for a record that ends in another way than those before it: it may go on."""
        if not self.last.endswith(("\r", "\n")):
            return
        old = self.last.endswith("\r")
        if self.old is not None and self.old != old:
            ends = ["a line feed", "a carriage return"]
            raise Malformed(
                f"got a line that ends with {ends[old]}, where others end with {ends[not old]}; must be in quotes "
                "if it is part of a text; remove it, or put the value in quotes"
            )
        self.old = old


def _header(record: list[str], name: str) -> list[str]:
    """The names of the columns."""
    header = [column.strip() for column in record]
    if not header:
        raise DataError(f"{name}: got only blank lines; must have a header and a row; write or copy it again")
    if len(header) > COLUMNS:
        raise DataError(
            f"{name}, header: got {len(header):,} columns; must be at most {COLUMNS:,}; write texts and labels alone, "
            "or check its line endings"
        )
    check_names(header, f"{name}, header")
    return header


def _of_width(records: Iterable[list[str]], width: int, name: str) -> Iterator[list[str]]:
    for row, record in enumerate(records, 1):
        if len(record) != width:
            raise DataError(
                f"{name}, row {row}: got {len(record)} values; must be {width}, as in the header; put a value that "
                "contains a separator in quotes, or add the missing one"
            )
        yield record
