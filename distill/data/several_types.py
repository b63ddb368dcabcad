"""Columns of JSON with values of several types. They are read as text, so that a file is read if no task uses them."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from distill.errors import DataError

_WHY = b"distill.several_types"
"""Key in the metadata of a field: why the column has no type."""


def field_of(name: str, why: str) -> pa.Field:
    """The field of such a column. `why`: the message for whoever uses it."""
    return pa.field(name, pa.string(), metadata={_WHY: why.encode()})


def has_several(field: pa.Field) -> bool:
    return _WHY in (field.metadata or {})


def as_text(value: Any) -> str | None:
    """A value as the text of JSON: a text is itself, and so are dates and the like of other files."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def in_text(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """The tables, in which a column is text if it has several types in one of them."""
    several = {field.name for table in tables for field in table.schema if has_several(field)}
    found = list[pa.Table]()
    for table in tables:
        for number, field in enumerate(table.schema):
            if field.name in several and not has_several(field):
                texts = pa.array(map(as_text, table[number].to_pylist()), pa.string())
                table = table.set_column(number, field.name, texts)
        found.append(table)
    return found


def alike(one: pa.Schema, other: pa.Schema) -> bool:
    """Whether schemas have the same columns of the same types, and the same ones of several types."""
    return one == other and [*map(has_several, one)] == [*map(has_several, other)]


def said(schema: pa.Schema) -> tuple[str, ...]:
    """A line on such columns, if there are some."""
    names = [field.name for field in schema if has_several(field)]
    return (f"values of several types in {', '.join(names[:8])} are read as text",) if names else ()


def carried(rows: pa.Table, parts: Sequence[pa.Table]) -> pa.Table:
    """The rows of several tables, in which a column has several types if it has them in one table."""
    found = {field.name: field.metadata for part in reversed(parts) for field in part.schema if has_several(field)}
    if not found:
        return rows
    fields = [f.with_metadata(found[f.name]) if f.name in found else f for f in rows.schema]
    return pa.table(rows.columns, schema=pa.schema(fields))


def check_types(rows: pa.Table, names: Collection[str | None]) -> None:
    """Raise DataError for the first of these columns that has values of several types."""
    for field in rows.schema:
        if field.name in names and has_several(field):
            raise DataError(field.metadata[_WHY].decode())
