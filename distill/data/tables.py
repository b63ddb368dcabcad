"""Reads parquet files; errors name the file, the row and what it must contain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from distill.data.task_types.task_type import check_texts
from distill.errors import DataError


def parts(file: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    """These columns of consecutive rows of a file. Raises DataError if it is incomplete, is not parquet or lacks a
    column."""
    try:
        with pq.ParquetFile(file) as source:
            present = source.schema_arrow.names
            if missing := [c for c in columns if c not in present]:
                raise DataError(f"{file}: got columns {present}; must have {list(columns)}; add {missing}")
            for batch in source.iter_batches(columns=list(columns)):
                yield pa.Table.from_batches([batch])
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{file}: got {reason!r}; must be a whole parquet file; copy or fetch it again") from error


def texts(table: pa.Table, column: str, where: object, before: int = 0) -> pa.ChunkedArray:
    """A text column [rows]. `before`: number of rows before the table.

    Raises:
        DataError: if it has another type or contains a null.
    """
    check_texts(table, [column], where)
    values = table[column]
    if values.null_count:
        row = before + pc.index(pc.is_null(values), True).as_py()
        raise DataError(f"{where}, row {row}: got null in {column}; must be text; remove the row")
    return values
