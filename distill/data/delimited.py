"""Record batches of a CSV or TSV file: each value is text, as it stands in the file.

The standard library parses CSV in its strict mode: pyarrow accepts some quotes that are never closed, and then makes
one value of all lines after the quote.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice

import pyarrow as pa

from distill.data.about import About, with_about
from distill.data.lines import COLUMNS, LONGEST, Malformed, check_names, chunks, lines, no_rows
from distill.data.quotes import quoted
from distill.data.separators import Dialect, records, separated
from distill.errors import DataError

INDEX = "index"
"""Name of the first column where the header has none and the values number the rows, as pandas and R write them."""
LARGEST = 1 << 27
"""Of these numbers, one bit each is in memory."""
_OF_NUMBERS = re.compile(r"(.*[_ -])?(id|idx|index|no|nr|number|row|#)|n", re.IGNORECASE)
"""Names of a column that numbers the rows."""
_NUMBERED = f"column 1 has no name and numbers the rows; it is named {INDEX}"
_RULE = re.compile("[-=]{2,}")
"""A value in the line below the names that some databases write."""

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
        records: Iterator[list[str]] = _records(text, name, dialect)
        header, notes = _header(next(records, []), name), dialect.notes
        first = next(records, [])
        if len(first) > 1 and all(_RULE.fullmatch(value.strip()) for value in first):
            first = next(records, [])
        peeked = [first] * bool(first) + next(chunks(islice(records, _PEEKED), _size), [])
        records = chain(peeked, records)
        if len(first) == len(header) + 1 and header[0]:
            numbered = [each[0] for each in peeked] == [str(row + 1) for row in range(len(peeked))]
            of_r = numbered and not _OF_NUMBERS.fullmatch(header[0])
            if not of_r and all(len(each) == len(first) and not each[-1] for each in peeked):
                header = [*header, ""]  # a separator ends each row, and not the header
            elif re.fullmatch("[0-9]{1,9}", first[0]):
                header = ["", *header]  # of R, whose column of row names has none
        rest = _of_width(_without_header(records, header, name), len(header), name)
        filled = len(header) - next((n for n, column in enumerate(reversed(header)) if column), 0)
        if 0 < filled < len(header):
            rest = _cut(rest, name, len(header), filled)
            empty_names = len(header) - filled
            notes = (*notes, f"{empty_names} column{'s' * (empty_names > 1)} without a name and values: left out")
            header = header[:filled]
        if not header[0] and len(header) > 1 and INDEX not in header:
            rest = _numbered(rest, name)
            header, notes = [INDEX, *header[1:]], (*notes, _NUMBERED)
        check_names(header, f"{name}, header")
        schema = with_about(pa.schema([(column, pa.string()) for column in header]), About(notes))
        empty = True
        for rows in chunks(rest, _size):
            columns = [_without_na(c) if n in dialect.bare else c for n, c in enumerate(zip(*rows, strict=True))]
            yield pa.record_batch([pa.array(column, pa.string()) for column in columns], schema=schema)
            empty = False
    if empty:
        raise no_rows(name)


_PEEKED = 1000
"""Rows, at most, that are read before it is decided what the first value without a name is."""


def _without_na(values: Sequence[str]) -> list[str | None]:
    return [None if value == "NA" else value for value in values]


def _size(record: Sequence[str]) -> int:
    return sum(map(len, record)) + len(record)


def _records(text: io.TextIOWrapper, name: str, dialect: Dialect) -> Iterator[list[str]]:
    """The header and the rows, without blank lines, and without the rows of empty values with which spreadsheets end a
    file. DataError names the row."""
    row, source, empty = 0, _Remembered(lines(text)), Counter[int]()
    try:
        for record in records(source, dialect):
            if not record:
                continue
            source.check_end()
            if row and len(record) > 1 and not any(record):
                empty[len(record)] += 1
                continue
            for width, count in empty.items():  # their order does not matter: rows of two widths are refused anyway
                yield from ([""] * width for _ in range(count))
            row += 1 + empty.total()
            empty.clear()
            yield record
    except (Malformed, csv.Error) as error:
        message = str(error)
        if isinstance(error, csv.Error):
            other = f"got {message!r}; must be CSV as in RFC 4180; correct the row"
            message = next((ours for part, ours in _CSV if part in message), other)
        place = f"{name}, row {row + empty.total()}" if row else f"{name}, header"
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
        """Raise Malformed for a record that ends in another way than the records before it, because it may go on."""
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
    return header


def _without_header(records: Iterable[list[str]], header: list[str], name: str) -> Iterator[list[str]]:
    """The same records. Raises DataError for one that is the header again, as where files were joined."""
    for row, record in enumerate(records, 1):
        same = len(header) > 1 and record[0].strip("\ufeff ") == header[0]  # first, as there may be millions
        if same and [value.strip("\ufeff ") for value in record] == header:
            raise DataError(
                f"{name}, row {row}: got the names of the columns again, as where files were joined; must be a row; "
                "remove the line"
            )
        yield record


def _of_width(records: Iterable[list[str]], width: int, name: str) -> Iterator[list[str]]:
    for row, record in enumerate(records, 1):
        if len(record) != width:
            raise DataError(
                f"{name}, row {row}: got {len(record)} values; must be {width}, as in the header; put a value that "
                "contains a separator in quotes, or add the missing one"
            )
        yield record


def _numbered(records: Iterable[list[str]], name: str) -> Iterator[list[str]]:
    """The same records. Raises DataError unless the first values are different whole numbers, in any order."""
    seen = bytearray()
    for row, record in enumerate(records, 1):
        if not any(record):
            raise DataError(f"{name}, row {row}: got a row without values; must have some; remove the row")
        number = int(record[0]) if re.fullmatch("[0-9]{1,9}", record[0]) else LARGEST
        place, bit = number >> 3, 1 << (number & 7)
        if number >= LARGEST or (seen[place : place + 1] and seen[place] & bit):
            raise DataError(
                f"{name}, row {row}: got {record[0][:40]!r} in column 1, which has no name and does not number the "
                "rows; must name every column; name it, or remove the column"
            )
        seen.extend(bytes(max(0, place + 1 - len(seen))))
        seen[place] |= bit
        yield record


def _cut(records: Iterable[list[str]], name: str, width: int, filled: int) -> Iterator[list[str]]:
    """The first values of the records. Raises DataError unless the others are empty, or have spaces alone."""
    for row, record in enumerate(records, 1):
        if value := next((value for value in record[filled:] if value.strip()), None):
            raise DataError(
                f"{name}, row {row}: got {value[:40]!r} in a column without a name, after {filled} of {width} columns; "
                "must be empty, or have a name; name the column, or remove the value"
            )
        yield record[:filled]
