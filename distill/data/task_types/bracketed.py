"""Lists and objects that are written as text in the place of the names of labels."""

from __future__ import annotations

import re
from collections.abc import Iterable

from distill.data.task_types.task_type import Stated
from distill.errors import DataError

_CALL = re.compile(r"(c|list|array|frozenset|set|WrappedArray|Index|dict_keys|dict_values)\(")
_MARKS = {"[]": "'\"{,", "{}": "'\":,"}
"""Brackets around a list or an object -> characters of which one is within them."""


def is_written(name: str) -> bool:
    """Whether a name is the text of a list or of an object."""
    marks = _MARKS.get(name[:1] + name[1:][-1:], "")
    return any(mark in name for mark in marks) or _CALL.match(name) is not None


def not_names(cell: str, file: str, column: str) -> DataError:
    return DataError(
        f"{file}: got {cell[:80]!r} as a label in {column}; must be names of labels, and not lists or objects that "
        "are written as text among other values; write the rows as JSON Lines with lists, or as one name a row"
    )


def check_cells(cells: Iterable[str], stated: Stated) -> None:
    """Raise DataError for a cell that is a list or an object as a whole, whose parts would be taken for labels."""
    for cell in sorted({*cells} - {*stated.known}):
        if is_written(cell) and _is_whole(cell):
            raise not_names(cell, stated.file, stated.column)


def _is_whole(cell: str) -> bool:
    """Whether nothing follows the partner of the first bracket, as something does in `[a], [b, c]`."""
    depth = 0
    for place, character in enumerate(cell, 1):
        if character in "[{(":
            depth += 1
        elif character in "]})":
            depth -= 1
            if not depth:
                return place == len(cell)
    return True


def check_parts(cell: str, parts: Iterable[str], stated: Stated) -> None:
    """Raise DataError if a bracket at the edge of a part of a cell has its partner in another part."""
    pairs = [(pair[0], pair[1]) for pair in _MARKS if pair[0] in cell and pair[1] in cell]
    for part in parts:
        if any(
            (part[0] == one and other not in part) or (part[-1] == other and one not in part) for one, other in pairs
        ):
            raise not_names(cell, stated.file, stated.column)
