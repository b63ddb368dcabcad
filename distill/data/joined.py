"""The rows of several files as one table, with the columns that names of folders state, as in `label=spam/0.parquet`:
Hive, Spark and pandas write such folders."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from urllib.parse import unquote

import pyarrow as pa

from distill.data.fasttext import in_lists
from distill.data.several_types import carried, in_text
from distill.errors import DataError, reason

_FOLDER = re.compile(r"([^=]+)=([^=]*)")
_NOTHING = "__HIVE_DEFAULT_PARTITION__"
"""Value of a column that is null, in the name of a folder."""


def joined(files: Sequence[str], tables: Sequence[pa.Table]) -> pa.Table:
    """All rows, with the columns of the first file in its order. DataError names the first file that differs."""
    tables = in_text(in_lists(tables))
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


def partitions(files: Sequence[str]) -> list[dict[str, str | None]]:
    """For each file, the values of the columns that its folders state, of those in which the files differ."""
    parts = [[_FOLDER.fullmatch(part) for part in re.split(r"[/\\]", file)[:-1]] for file in files]
    found = [{part[1]: unquote(part[2]) for part in each if part is not None} for each in parts]
    names = [name for name in dict.fromkeys(chain(*found)) if len({each.get(name) for each in found}) > 1]
    return [{name: None if (value := each.get(name)) == _NOTHING else value for name in names} for each in found]


def constant(value: str | None, rows: int) -> pa.Array:
    """A column [rows] of text with one value."""
    return pa.repeat(pa.scalar(value, pa.string()), rows)


def with_partitions(rows: pa.Table, files: Sequence[str], sizes: Sequence[int]) -> tuple[pa.Table, list[str]]:
    """(the rows of files with these numbers of rows, and the columns that their folders state and they lack; the names
    of these columns)."""
    known = partitions(files)
    names = [name for name in known[0] if name not in rows.column_names]
    for name in names:
        parts = [constant(each[name], size) for each, size in zip(known, sizes, strict=True)]
        rows = rows.append_column(name, pa.chunked_array(parts))
    return rows, names
