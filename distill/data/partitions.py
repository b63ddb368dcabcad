"""Columns that the names of folders state, as in `label=spam/0.parquet`: Hive, Spark and pandas write such folders."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from urllib.parse import unquote

import pyarrow as pa

_FOLDER = re.compile(r"([^=]+)=([^=]*)")
_NOTHING = "__HIVE_DEFAULT_PARTITION__"
"""Value of a column that is null, in the name of a folder."""


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
