"""How the columns of a text file are separated, where the settings do not state it.

The header and the first rows decide. A separator that differs from the extension's is noted, and a header that could be
read in two ways is refused with both.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

from distill.data.lines import Malformed, chunks, lines
from distill.errors import DataError
from distill.runtime.quoting import setting

NAMES = {"comma": ",", "semicolon": ";", "tab": "\t", "pipe": "|"}
"""Name of a separator in settings -> character."""
SAMPLE = 200
"""Lines by which a separator is chosen."""
_STATED = re.compile(r'"?sep=([^\r\n"])"?[\r\n]*', re.IGNORECASE)
"""A line before the header that states the separator, for Excel."""

_NAME = re.compile(r'"?[\w.-]+"?\s*')
"""A first line that may be the name of a single column."""
_REMARK = re.compile(r'\s*"?(#|//|--|%)')
"""How a line begins that programs write before the names."""


@dataclass(frozen=True)
class Dialect:
    """How the lines of a file are read as records."""

    separator: str
    quoting: bool = True
    """Whether quotes are CSV's. If not, they are part of the texts, and each line is a row."""
    stated: bool = False
    """Whether the first line states the separator, and is not the header."""
    notes: tuple[str, ...] = ()
    """Lines for the user on what was chosen."""
    spaced: bool = False
    """Whether a space stands before quotes that enclose a value."""
    bare: frozenset[int] = frozenset()
    """Columns in which `NA` without quotes stands for no value, as R writes it beside texts in quotes."""


@dataclass(frozen=True)
class _Reading:
    """The first records with one separator."""

    separator: str
    header: tuple[str, ...]
    share: float
    """Share of the records after the header that have as many values."""


def named(separator: str) -> str:
    """The name of a separator, or the character itself."""
    return next((name for name, each in NAMES.items() if each == separator), separator)


def records(text: Iterator[str], dialect: Dialect) -> Iterator[list[str]]:
    """The records of lines. csv.Error for wrong quotes."""
    if dialect.stated:
        next((line for line in text if not line.isspace()), None)
    if dialect.quoting:
        return csv.reader(text, delimiter=dialect.separator, strict=True, skipinitialspace=dialect.spaced)
    return csv.reader(text, delimiter=dialect.separator, quoting=csv.QUOTE_NONE)


def separated(text: io.TextIOWrapper, name: str, usual: str | None, given: str | None) -> Dialect:
    """The dialect of a file, with quotes as in CSV.

    Args:
        usual: the separator of the file's extension; None if it has none.
        given: the separator of the settings; None without.

    Raises:
        DataError: for a header that could be read in two ways.
    """
    start = _start(text)
    found = _separated(start, name, usual, given)
    return replace(found, spaced=_spaced(start[found.stated :], found.separator))


def _spaced(start: Sequence[str], separator: str) -> bool:
    """Whether the quotes that enclose values stand behind a space, as in `"a", "b"`."""
    mark = re.compile(rf'{re.escape(separator)} +"[^"]*"\s*({re.escape(separator)}|$)')
    lines = [line for line in start if mark.search(line)]
    return 2 * len(lines) > len(start) and _parsed(start, separator, csv.QUOTE_MINIMAL, spaced=True).share == 1


def _separated(start: list[str], name: str, usual: str | None, given: str | None) -> Dialect:
    stated = _STATED.fullmatch(start[0]) if len(start) > 1 else None
    if stated is not None:
        note = f"its first line, {start[0].strip()}, states the separator"
        return Dialect(given or stated[1], stated=True, notes=() if given else (note,))
    if given is not None:
        _check_first(start, name, given, (given,))
    if given is not None or not start:
        return Dialect(given or usual or ",")
    readings = [_reading(start, separator) for separator in NAMES.values()]
    own = next((reading for reading in readings if reading.separator == usual), None)
    others = [reading for reading in readings if reading is not own and len(reading.header) > 1]
    if not others and (own is None or len(own.header) == 1):
        _check_first(start, name, usual or "\t", NAMES.values() if own else "\t")
    if own is None:
        return _without_usual(name, others)
    return _with_usual(name, own, others) if others else Dialect(own.separator)


def _check_first(start: Sequence[str], name: str, usual: str, separators: Iterable[str]) -> None:
    """Raise DataError for a first line that is no line of names: it has one value, and the lines below have several.

    A single name may stand above texts with separators, and so may a line of words unless the `usual` one separates.
    So may any line above rows with numbers in front, as R writes them, and above rows that end with a separator.
    """
    if len(start) < 3 or _NAME.fullmatch(start[0]) or start[0].count('"') % 2:
        return
    if len(_reading(start[:1], usual).header) > 1:
        return
    for separator in separators if _REMARK.match(start[0]) else (usual,):
        below = _reading(start[1:], separator)
        if len(below.header) > 1 and below.share == 1 and not _adds_none(start[1:], separator):
            raise DataError(
                f"{name}, header: got {start[0].strip()[:60]!r} above lines of {len(below.header)} values; must be the "
                f"names of the columns; remove this line, or put values with a {named(separator)} in quotes"
            )


def _adds_none(below: Sequence[str], separator: str) -> bool:
    """Whether one of two values in each line is of no column: the first ones count them, or the last ones are empty."""
    rows = _rows(below, separator, csv.QUOTE_MINIMAL)
    counted = all(row[0].strip() == str(number) for number, row in enumerate(rows, 1))
    return bool(rows) and len(rows[0]) == 2 and (counted or not any(row[-1].strip() for row in rows))


def _start(text: io.TextIOWrapper) -> list[str]:
    """The first lines. None of a file whose lines are refused later, with their row."""
    try:
        return next(chunks(islice((line for line in lines(text) if not line.isspace()), SAMPLE), len), [])
    except Malformed:
        return []


def _reading(start: Sequence[str], separator: str) -> _Reading:
    """The reading with this separator, with quotes as in CSV or as text, whichever fits more rows."""
    readings = [_parsed(start, separator, quoting) for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_NONE)]
    return max(readings, key=lambda reading: reading.share)


def _rows(start: Sequence[str], separator: str, quoting: Literal[0, 3], spaced: bool = False) -> list[list[str]]:
    rows = list[list[str]]()
    try:
        read = csv.reader(start, delimiter=separator, quoting=quoting, skipinitialspace=spaced)
        rows += (row for row in read if row)
    except csv.Error:
        pass  # refused later, with its row
    return rows


def _parsed(start: Sequence[str], separator: str, quoting: Literal[0, 3], spaced: bool = False) -> _Reading:
    rows = _rows(start, separator, quoting, spaced)
    header = tuple(rows[0]) if rows else ()
    # A value in quotes may go on after the last of these lines.
    rest = rows[1:-1] if len(start) == SAMPLE else rows[1:]
    share = sum(len(row) == len(header) for row in rest) / len(rest) if rest else 1.0
    return _Reading(separator, header, share)


def _with_usual(name: str, own: _Reading, others: Sequence[_Reading]) -> Dialect:
    """The separator of the extension or, if the header does not contain it, the one that the header contains."""
    fitting = [reading for reading in others if reading.share == 1]
    if len(own.header) > 1:
        if own.share == 1 and fitting:
            raise _two(name, own, fitting[0])
        return Dialect(own.separator)
    fitting = fitting or [reading for reading in others if reading.share > 0.5]
    if len(fitting) == 1:
        return _chosen(fitting[0])
    raise _two(name, own if not fitting else fitting[0], (fitting or others)[-1])


def _without_usual(name: str, others: Sequence[_Reading]) -> Dialect:
    """A tab, if it separates all rows. Other separators may be a part of the lines of a text."""
    tabs = [reading for reading in others if reading.separator == "\t" and reading.share == 1]
    if tabs:
        return _chosen(tabs[0])
    got = f"{name}, header: got lines without tabs between columns"
    got += "; must be a table with a header, or words with their tags"
    fitting = [reading for reading in others if reading.share == 1]
    if len(fitting) == 1:
        raise DataError(f"{got}; set {setting('tasks.separator', named(fitting[0].separator))}")
    raise DataError(f"{got}; write its texts and labels as .csv or .jsonl, or words and tags as .conll")


def _chosen(reading: _Reading) -> Dialect:
    shown = ", ".join(column.strip()[:40] for column in reading.header[:20])
    note = f"its header is separated by {named(reading.separator)}s, so its columns are {shown}"
    return Dialect(reading.separator, notes=(note,))


def _shown(reading: _Reading) -> str:
    names = " and ".join(repr(column[:40]) for column in reading.header[:3])
    count = len(reading.header)
    return f"{names}{f' and {count - 3} more' if count > 3 else ''}"


def _two(name: str, first: _Reading, second: _Reading) -> DataError:
    own, other = (setting("tasks.separator", named(reading.separator)) for reading in (first, second))
    count = "one column" if len(first.header) == 1 else "columns"
    return DataError(
        f"{name}, header: got what could be {count} {_shown(first)}, or columns {_shown(second)}; must be one of the "
        f"two; add {own} for the first; for the second; set {other}"
    )
