"""Lists as databases write them in a cell: arrays of PostgreSQL, such as `{billing,"lost card"}`, and tags as in the
dumps of Stack Overflow, such as `<billing><card>`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_ITEM = r'("([^"\\]|\\.)*"|[^\s"\'{},:\\][^\s"{},:\\]*)'
"""An item of an array, in quotes if it has spaces, braces or the like. Without them, one with a colon may be of an
object."""
_ARRAY = rf"(?s)^\s*\{{({_ITEM}(,{_ITEM})*)?\}}\s*$"
_TRUTHS = r"^\s*\{([tf](,[tf])*)?\}\s*$"
_PARTS = re.compile(r'"((?:[^"\\]|\\.)*)"|([^\s"{},\\]+)', re.DOTALL)
_TAGS = r"^\s*(<[^<>]+>)+\s*$"


def reader(column: pa.ChunkedArray, sample: int, known: bool) -> Callable[[str], list[Any]] | None:
    """What reads a cell of a column of text, all of whose cells are such lists, if some have several items; None for
    any other column.

    Args:
        sample: rows that are looked at before the others.
        known: whether the column has lists in another table, so that no cell needs several items.
    """
    for form, between, read in _FORMS:
        if all_match(column.slice(0, sample), form) and all_match(column, form):
            return read if known or pc.any(pc.match_substring(column, between)).as_py() else None
    return None


def all_match(column: pa.ChunkedArray, form: str) -> bool:
    """Whether all cells that are not empty have a form, and there are some."""
    given = pc.filter(column, pc.fill_null(pc.match_substring_regex(column, r"\S"), False))
    return len(given) > 0 and bool(pc.all(pc.match_substring_regex(given, form)).as_py())


def _array(cell: str) -> list[Any]:
    pairs = _PARTS.findall(cell.strip()[1:-1])
    return [_value(bare) if bare else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) for quoted, bare in pairs]


def _value(bare: str) -> Any:
    """A number, null, or the text itself. 007 is a code."""
    if re.fullmatch(r"-?(0|[1-9]\d{0,17})", bare):
        return int(bare)
    return None if bare == "NULL" else bare


def _truths(cell: str) -> list[bool]:
    return [item == "t" for item in cell.strip()[1:-1].split(",") if item]


def _tags(cell: str) -> list[str]:
    return re.findall("<([^<>]+)>", cell)


_FORMS: tuple[tuple[str, str, Callable[[str], list[Any]]], ...] = (
    (_TRUTHS, ",", _truths),
    (_ARRAY, ",", _array),
    (_TAGS, "><", _tags),
)
"""(form of a cell, what stands between two of its items, function that reads it)."""
