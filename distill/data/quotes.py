"""Whether the quotes of a text file enclose values, as in CSV, or are a part of its texts, as in many TSV files.

All rows decide. Where quotes are CSV's, a row may have several lines; where they are text, each line is a row. A file
that could be read in both ways is refused, because one of them would lose rows.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from distill.data.lines import CHARACTERS, COLUMNS, Malformed, lines
from distill.data.separators import Dialect, named, records
from distill.errors import DataError

_BARE = "\t|"
"""Separators of files that may quote nothing, because texts rarely contain them."""
_VALUES, _LONGEST, _SPANS = 100, 100, 1000
"""Different values of a column, their characters, and rows of several lines, by which quotes are judged."""
_TEXT = "its quotes are a part of the texts, because they do not enclose values, so each line is a row"


@dataclass
class _Evidence:
    width: int
    """Values of the header."""
    whole: bool = True
    """Whether each line has as many values as the header, if quotes are text."""
    broken: bool = False
    """Whether the quotes are not CSV's, or a row has another number of values than the header."""
    csv: bool = False
    """Whether a quoted value contains a quote, written as two, or, in one line, a separator."""
    text: bool = False
    """Whether a value contains a quote and is not in quotes."""
    enclosed: Counter[int] = field(default_factory=Counter)
    """Column -> number of values in quotes."""
    others: set[int] = field(default_factory=set)
    """Columns with values that are not in quotes."""
    bare: dict[int, set[str]] = field(default_factory=dict)
    """Column -> two of its values that are not in quotes."""
    na: set[int] = field(default_factory=set)
    """Columns with `NA` in quotes."""
    values: dict[int, set[str]] = field(default_factory=dict)
    """Column with few values -> these."""
    spans: list[tuple[int, list[list[str]]]] = field(default_factory=list)
    """(row, its lines as lists of values) where a value contains a separator and a new line."""
    kept: int = 0
    """Characters of these."""


def quoted(text: io.TextIOWrapper, name: str, dialect: Dialect) -> Dialect:
    """The dialect, with quotes as a part of the texts where nothing else fits the rows.

    Raises:
        DataError: where both are possible and give other rows.
    """
    if not _has_quotes(text):
        return dialect
    text.seek(0)
    try:
        found = _evidence(text, dialect)
    except (Malformed, csv.Error):
        return dialect  # refused later, with its row
    judged = _judged(found, name, dialect)
    missing = (column for column, values in found.bare.items() if values == {"NA"} and found.enclosed[column] > 1)
    return replace(judged, bare=frozenset(missing) - found.na) if judged.quoting else judged


def _has_quotes(text: io.TextIOWrapper) -> bool:
    while part := text.read(1 << 20):
        if '"' in part:
            return True
    return False


def _evidence(text: io.TextIOWrapper, dialect: Dialect) -> _Evidence:
    pending, source = list[str](), lines(text)

    def remembered() -> Iterator[str]:
        for line in source:
            pending.append(line)
            yield line

    reader = (record for record in records(remembered(), dialect) if record)
    header = next(reader, [])
    if len(header) > COLUMNS:
        raise Malformed("got too many columns")
    found = _Evidence(len(header), values={column: set() for column in range(len(header))})
    pending.clear()
    try:
        for row, record in enumerate(reader, 1):
            _consider(found, row, record, [line for line in pending if line.strip("\r\n")], dialect.separator)
            pending.clear()
    except csv.Error:
        found.broken = True
        rest = chain(pending, source) if dialect.separator in _BARE else ()
        for line in rest:
            if line.strip("\r\n"):
                _count(found, _split(line, dialect.separator))
    return found


def _split(line: str, separator: str) -> list[str]:
    return line.rstrip("\r\n").split(separator)


def _count(found: _Evidence, values: Sequence[str]) -> None:
    """Count the values of a line whose quotes are text."""
    found.whole &= len(values) == found.width
    for column, value in enumerate(values[: found.width]):  # a longer row is refused later
        enclosed = len(value) > 1 and value.startswith('"') and value.endswith('"')
        found.enclosed[column] += enclosed
        found.text |= '"' in value and not enclosed
        if value and not enclosed:
            found.others.add(column)
            if len(known := found.bare.setdefault(column, set())) < 2:
                known.add(value)
        elif value == '"NA"':
            found.na.add(column)


def _consider(found: _Evidence, row: int, record: Sequence[str], written: Sequence[str], separator: str) -> None:
    """Count a record of CSV, which is written in these lines."""
    found.broken |= len(record) != found.width
    if len(written) == 1:
        _consider_line(found, record, written[0], separator)
        return
    apart = [_split(line, separator) for line in written]
    found.whole &= all(len(values) == found.width for values in apart)
    found.csv |= any(_is_doubled(value, "".join(written)) for value in record)
    several = (value for value in record if "\n" in value or "\r" in value)
    few = len(found.spans) < _SPANS and found.kept < CHARACTERS
    if few and any(separator in value for value in several):
        found.spans.append((row, apart))
        found.kept += sum(map(len, written))
    _remember(found, record)


def _consider_line(found: _Evidence, record: Sequence[str], line: str, separator: str) -> None:
    values = list(record)
    if '"' in line:
        values = _split(line, separator)
        found.csv |= len(values) > len(record) or any(_is_doubled(value, line) for value in record)
    if len(values) == len(record):
        _count(found, values)
    else:
        found.whole = False
    _remember(found, record)


def _remember(found: _Evidence, record: Sequence[str]) -> None:
    """Add the values of a record to the values of its columns, and forget columns with many values."""
    for column in list(found.values):
        if column < len(record):
            found.values[column].add(record[column][:_LONGEST])
            if len(found.values[column]) > _VALUES:
                del found.values[column]


def _is_doubled(value: str, written: str) -> bool:
    """Whether a value contains a quote and is written in quotes, with two quotes for each."""
    return '"' in value and '"' + value.replace('"', '""') + '"' in written


def _are_rows(found: _Evidence, part: Sequence[Sequence[str]]) -> bool:
    """Whether lines have the number of values of a row, and a value, not empty, that other rows have in the same
    column."""
    return all(
        len(line) == found.width and any(line[n] and line[n] in seen for n, seen in found.values.items())
        for line in part
    )


def _judged(found: _Evidence, name: str, dialect: Dialect) -> Dialect:
    bare = dialect.separator in _BARE and found.width > 1
    text = replace(dialect, quoting=False, notes=(*dialect.notes, _TEXT))
    mixed = [column for column in range(found.width) if found.enclosed[column] and column in found.others]
    if found.broken:
        return text if bare and found.whole and not found.csv and (found.text or mixed) else dialect
    if not found.spans:
        return _noted(found, mixed, dialect) if bare and mixed and not found.csv else dialect
    row, part = next((span for span in found.spans if _are_rows(found, span[1])), found.spans[0])
    rows = found.width > 1 and _are_rows(found, part)
    if bare and found.whole and not found.csv and (found.text or (rows and len(part) > 2)):
        return text
    if (found.whole and (rows or bare) and not (found.csv and not rows)) or (rows and not found.csv):
        raise _two(name, row, part, dialect.separator)
    return dialect


def _noted(found: _Evidence, mixed: Sequence[int], dialect: Dialect) -> Dialect:
    count = sum(found.enclosed[column] for column in mixed)
    note = f"the quotes around {count:,} of its values enclose them, as in CSV, and are no part of the texts"
    return replace(dialect, notes=(*dialect.notes, note))


def _two(name: str, row: int, part: Sequence[Sequence[str]], separator: str) -> DataError:
    begin = " ".join(part[0])[:40]
    return DataError(
        f"{name}, row {row}: got quotes, before {begin!r}, that could enclose {len(part)} lines as one value, or be a "
        f"part of the texts, with each line a row; must be one of the two; take the {named(separator)}s out of that "
        "value in the first case; in the second write each quote of the file as two, and texts with quotes in quotes"
    )
