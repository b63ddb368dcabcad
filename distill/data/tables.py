"""Reads parquet files; errors name the file, the row and what it must contain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from distill.errors import DataError


def read_parquet(file: Path, columns: Sequence[str]) -> pa.Table:
    """These columns of a file. Raises DataError if it is incomplete, is not parquet or lacks a column."""
    with _opened(file, columns) as source:
        return source.read(columns=list(columns))


def parts(file: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    """These columns of consecutive rows of a file. Raises DataError as from `read_parquet`."""
    with _opened(file, columns) as source:
        for batch in source.iter_batches(columns=list(columns)):
            yield pa.Table.from_batches([batch])


@contextmanager
def _opened(file: Path, columns: Sequence[str]) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(file) as source:
            present = source.schema_arrow.names
            if missing := [c for c in columns if c not in present]:
                raise DataError(f"{file}: got columns {present}; must have {list(columns)}; add {missing}")
            yield source
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{file}: got {reason!r}; must be a whole parquet file; copy or fetch it again") from error


def texts(table: pa.Table, column: str, where: object, before: int = 0) -> pa.ChunkedArray:
    """A text column [rows]. `before`: number of rows before the table.

    Raises:
        DataError: if it has another type or contains a null.
    """
    values = table[column]
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        raise DataError(f"{where}: got {values.type} in column {column}; must be text; convert it")
    if values.null_count:
        row = before + first(pc.is_null(values))
        raise DataError(f"{where}, row {row}: got null in {column}; must be text; remove the row")
    return values


def blank(values: pa.ChunkedArray) -> np.ndarray:
    """[rows] whether a text is empty or only white space."""
    return np.asarray(pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(values)), 0))


def first(flags: pa.ChunkedArray | np.ndarray) -> int:
    """Number, from 0, of the first row whose flag [rows] is set."""
    return int(np.flatnonzero(np.asarray(flags))[0])
