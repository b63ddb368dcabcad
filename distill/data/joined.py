"""The rows of several files as one table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from distill.data.several_types import carried, in_text
from distill.errors import DataError, reason


def joined(files: Sequence[str], tables: Sequence[pa.Table]) -> pa.Table:
    """All rows, with the columns of the first file in its order. DataError names the first file that differs."""
    tables = in_text(tables)
    first = tables[0]
    schema = first.schema
    for file, table in zip(files[1:], tables[1:], strict=True):
        if set(table.column_names) != set(first.column_names):
            raise DataError(
                f"{file}: got columns {table.column_names}; must be {first.column_names}, as in {files[0]}; "
                "add, remove or rename columns"
            )
        try:
            schema = pa.unify_schemas([schema, table.schema], promote_options="permissive")
        except pa.ArrowTypeError as error:
            column = next(c for c in schema.names if not _fits(schema.field(c), table.schema.field(c)))
            raise DataError(
                f"{file}: got {table.schema.field(column).type} in column {column!r}; must be "
                f"{schema.field(column).type}, as in the files before it; write it as one type in all files"
            ) from error
    parts = [_cast(file, table, schema) for file, table in zip(files, tables, strict=True)]
    return carried(pa.concat_tables(parts), tables)


def _cast(file: str, table: pa.Table, schema: pa.Schema) -> pa.Table:
    chosen = table.select(schema.names)
    if chosen.schema.equals(schema):  # a cast loses rows of a key that is always null
        return chosen
    try:
        return chosen.cast(schema)
    except pa.ArrowException as error:
        raise DataError(
            f"{file}: got values of other types than in the other files ({reason(error)}); must be of one type in each "
            "column; write each column as one type in all files"
        ) from error


def _fits(field: pa.Field, other: pa.Field) -> bool:
    try:
        pa.unify_schemas([pa.schema([field]), pa.schema([other])], promote_options="permissive")
    except pa.ArrowTypeError:
        return False
    return True
