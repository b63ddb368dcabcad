"""The rows of a JSON file: one object a line, one array of objects, or one object with the rows in it.

An array is never in memory as a whole.
"""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Literal

from distill.data import shapes
from distill.data.lines import LONGEST, Malformed, check_text, lines

Form = Literal["lines", "array", "object"]
"""One object a line, one array of rows, or, maybe, one object with the rows in it."""
_READ = 1 << 16
"""Characters that are read at once."""
WHOLE = 1 << 24
"""Characters of an object that is in memory as a whole."""

Rows = Iterator[tuple[dict[str, Any], int]]
"""(row, its characters)."""


class _Source:
    """A text of which a part that was read can be put back."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text, self._back, self._at = text, "", 0

    def read(self, size: int) -> str:
        """The next characters: none at the end, and else maybe fewer."""
        if self._at == len(self._back):
            return self._text.read(size)
        part = self._back[self._at : self._at + size]
        self._at += len(part)
        return part

    def put_back(self, part: str) -> None:
        """Let a part be read next."""
        self._back, self._at = part + self._back[self._at :], 0


def form(start: bytes, *, whole: bool) -> Form:
    """The form of a file that begins with `start`. `whole`: the file may be one JSON value, as `.json` states."""
    found: dict[bytes, Form] = {b"[": "array", b"{": "object"}
    return found.get(start[:1], "lines") if whole else "lines"


def rows(text: io.TextIOWrapper, form: Form, notes: list[str]) -> Rows:
    """The rows of a file. A note is added, before the first row, where the form could mean something else.

    Raises:
        Malformed: for the row after the yielded rows.
        RecursionError: for lists in lists.
    """
    if form == "array":
        source = _Source(text)
        elements = _Values(source, _more("", source))
        for value, characters in elements:
            yield shapes.row(value), characters
        _check_end(elements.rest, source)
    elif form == "lines" or _has_lines(text):
        text.seek(0)
        yield from _objects(text)
    else:
        text.seek(0)
        yield from _document(_Source(text), notes)


def _constant(literal: str) -> float:
    """`math.nan` itself, by which `shapes.row` knows it. Raises Malformed for infinity."""
    if literal == "NaN":
        return math.nan
    raise Malformed(f"got {literal}; must be JSON, whose numbers are finite; write null, or remove the row")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise Malformed(f"got the key {twice[:40]!r} twice in one object; must be there once; remove one of them")
    return value


_DECODER = json.JSONDecoder(parse_constant=_constant, object_pairs_hook=_once)


def _broken(error: ValueError) -> Malformed:
    problem = f"{error.msg}, character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else str(error)
    return Malformed(f"got broken JSON ({problem}); must be a whole JSON object; correct or remove the row")


def _objects(text: io.TextIOWrapper) -> Iterator[tuple[dict[str, Any], int]]:
    """(object, characters) of every line that is not blank."""
    for line in lines(text):
        if line.isspace():
            continue
        try:
            yield shapes.row(_DECODER.decode(line)), len(line)
        except ValueError as error:
            raise _broken(error) from error


def _has_lines(text: io.TextIOWrapper) -> bool:
    """Whether a file has one object a line: its first line is whole, and there are others."""
    try:
        first = list(islice((line for line in lines(text) if not line.isspace()), 2))
        _DECODER.decode(first[0])
    except (ValueError, RecursionError, Malformed):
        return False
    return len(first) > 1


class _Values:
    """(value, characters) of every element of an array, and the text after the last one."""

    def __init__(self, text: _Source, rest: str) -> None:
        self.text, self.rest = text, rest[1:]

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        first = True
        while not (rest := _more(self.rest, self.text)).startswith("]"):
            if not first:
                rest = _more(_after(rest, ",", "a comma, or ] after the last row"), self.text)
            value, self.rest, characters = _element(rest, self.text)
            yield value, characters
            first = False
        self.rest = rest[1:]


def _after(rest: str, mark: str, wanted: str) -> str:
    if not rest.startswith(mark):
        raise Malformed(
            f"got {rest[:20] or 'the end of the file'!r} after the value before it; must be {wanted}; write or copy "
            "the file again"
        )
    return rest[1:]


def _check_end(rest: str, text: _Source) -> None:
    if rest := _more(rest, text):
        raise Malformed(
            f"got {rest[:20]!r} after the end; must be one array or one object; write one object a line, or one array"
        )


def _document(text: _Source, notes: list[str]) -> Rows:
    """The rows of one object: its list `data`, which is not in memory as a whole, or what `shapes.of_object` finds."""
    rest, fields, read = _more("", text)[1:], dict[str, Any](), 0
    found = False
    while not (rest := _more(rest, text)).startswith("}"):
        if fields or found:
            rest = _more(_after(rest, ",", "a comma, or } after the last value"), text)
        key, rest, _ = _element(rest, text)
        if not isinstance(key, str):
            raise Malformed(f"got {str(key)[:20]!r} as a key; must be text; write or copy the file again")
        rest = _more(_after(_more(rest, text), ":", "a colon"), text)
        if key == "data" and rest.startswith("["):
            elements = _Values(text, rest)
            for value, characters in elements:
                found = True
                yield from _of_data(value, characters, fields)
            rest = elements.rest
            continue
        if key in fields:
            raise Malformed(f"got the key {key[:40]!r} twice; must be there once; remove one of them")
        fields[key], rest, characters = _element(rest, text, WHOLE)
        read += characters
        if read > WHOLE:
            raise Malformed(
                f"got one object of more than {WHOLE:,} characters; must be shorter; write one object for each row, in "
                "lines or in one array"
            )
    _check_end(rest[1:], text)
    if not found:
        rows = shapes.of_object(fields, notes)
        for row in rows:
            yield row, read // len(rows) + 1


def _of_data(value: Any, characters: int, fields: Mapping[str, Any]) -> Rows:
    """The rows of an element of `data`: SQuAD's questions, or a row, whose values may be named by `columns`."""
    if isinstance(value, dict) and "paragraphs" in value:
        yield from shapes.questions({"data": [value]})
    elif isinstance(value, list) and isinstance(columns := fields.get("columns"), list):
        if len(columns) != len(value):
            raise Malformed(f"got {len(value)} values; must be {len(columns)}, as in columns; correct the row")
        yield shapes.row(dict(zip(map(str, columns), value, strict=True))), characters
    else:
        yield shapes.row(value), characters


def _more(rest: str, text: _Source) -> str:
    """`rest` without white space before it, and with more text if nothing is left."""
    while not (rest := rest.lstrip()) and (read := text.read(_READ)):
        rest = read
    return rest


def _element(rest: str, text: _Source, longest: int = LONGEST) -> tuple[Any, str, int]:
    """(the value that `rest` begins with, the text after it, characters of the value)."""
    while True:
        try:
            value, end = _DECODER.raw_decode(rest)
        except ValueError as error:
            # An element that is not in `rest` as a whole is broken in the same way as a wrong one.
            read = text.read(max(len(rest), _READ)) if len(rest) < longest else ""
            if not read:
                raise _broken(error) from error
        else:
            read = text.read(_READ) if end > len(rest) - 3 else ""  # a number may go on, also after 1. and 1e-
            if not read:
                check_text(rest[:end])
                if len(rest) > end + _READ:  # of a long value, whose rest would be copied for each value after it
                    text.put_back(rest[end + _READ :])
                return value, rest[end : end + _READ], end
        rest += read
