"""Record batches of a user's parquet file, with names in place of the numbers of classes.

A small file can contain many rows, because a value that is repeated is stored once. What a batch takes in memory is
known before its values are repeated.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from distill.data.about import About, with_about
from distill.data.class_names import classes_of, features_of, named, named_type
from distill.data.lines import ROWS, check_names, no_rows, too_large
from distill.data.task_types.task_type import is_list
from distill.errors import DataError

COLUMNS = 10_000
"""Maximum number of columns. A file with more does not hold texts and labels."""
AT_ONCE = 1 << 26
"""Bytes of rows that are in memory at once."""
LARGEST = 1 << 28
"""Bytes that a single row may take."""
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12, "BYTE_ARRAY": 4}
"""Physical type -> bytes of a value in memory, without the bytes of a text."""
_DELTA = "DELTA_BYTE_ARRAY"
"""An encoding by which a text may repeat a part of the one before it."""
_FEWEST = 8
"""Rows that are read at once where a value may repeat the one before it."""


def batches(
    file: BinaryIO,
    name: str,
    most: int | None,
    group: int | None = None,
    columns: Sequence[str] | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """The rows of a file. Raises DataError if it is malformed, or its rows take more bytes than `most`.

    Args:
        group: number of the only row group that is read, if it is one.
        columns: the only columns that are read, if they are some.
    """
    magic = bytes(file.read(4))
    file.seek(0)
    if magic == b"PARE":
        raise DataError(f"{name}: got an encrypted file; must be plain parquet; decrypt it")
    if magic != b"PAR1":
        content = f"a file that begins with {magic!r}" if magic else "an empty file"
        raise DataError(f"{name}: got {content}; must be a parquet file; write it again, or correct its extension")
    try:
        metadata = pq.read_metadata(file)
        file.seek(0)
        _check(metadata, name, most)
        with pq.ParquetFile(file, pre_buffer=False, read_dictionary=_texts(metadata)) as source:
            yield from _rows(source, name, group, columns)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        problem = str(error).strip().splitlines()[0][:200]
        raise DataError(f"{name}: got {problem!r}; must be a whole parquet file; copy or fetch it again") from error


def _check(metadata: pq.FileMetaData, name: str, most: int | None) -> None:
    check_columns(metadata.schema.to_arrow_schema().names, name)
    if not metadata.num_rows:
        raise no_rows(name)
    size = sum(max(chunk.total_uncompressed_size, chunk.num_values * _width(chunk)) for chunk in _chunks(metadata))
    if most is not None and size > most:
        raise too_large(name, size)


def check_columns(names: Sequence[str], name: str) -> None:
    """Raise DataError unless a file has one column or more, not too many, with different names."""
    if not names or len(names) > COLUMNS:
        raise DataError(f"{name}: got {len(names) or 'no'} columns; must be 1 to {COLUMNS:,}; write the file again")
    check_names(names, name)


def _chunks(metadata: pq.FileMetaData) -> Iterator[pq.ColumnChunkMetaData]:
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        yield from map(group.column, range(group.num_columns))


def _width(chunk: pq.ColumnChunkMetaData) -> int:
    return _WIDTHS.get(chunk.physical_type, 16)


def _texts(metadata: pq.FileMetaData) -> list[str]:
    """Paths of the columns that are read as dictionaries, so that a repeated value is in memory once."""
    columns = map(metadata.schema.column, range(len(metadata.schema)))
    other = {chunk.path_in_schema for chunk in _chunks(metadata) if _DELTA in chunk.encodings}
    texts = (column.path for column in columns if column.physical_type == "BYTE_ARRAY" and _is_text(column))
    return [path for path in texts if path not in other]


def _is_text(column: pq.ColumnSchema) -> bool:
    return column.logical_type.type in ("STRING", "NONE", "ENUM", "JSON")


def _at_once(metadata: pq.FileMetaData) -> int:
    """Rows that are read at once: as many as take about `AT_ONCE` bytes."""
    rows = ROWS
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        if group.num_rows:  # an empty group tells nothing about the size of rows
            rows = min(rows, max(1, AT_ONCE * group.num_rows // max(group.total_byte_size, 1)))
    for chunk in _chunks(metadata):
        if _DELTA in chunk.encodings:
            rows = min(rows, max(_FEWEST, AT_ONCE // max(chunk.total_uncompressed_size, 1)))
    return rows


def _rows(
    source: pq.ParquetFile, name: str, group: int | None, columns: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    stored, groups = source.metadata.schema.to_arrow_schema(), range(source.metadata.num_row_groups)
    sizes = [source.metadata.row_group(number).num_rows for number in groups]
    row = 0 if group is None else sum(sizes[:group])
    end = row + (sum(sizes) if group is None else sizes[group])
    if columns is not None:
        stored = pa.schema([field for field in stored if field.name in columns], stored.metadata)
    parts = source.iter_batches(
        batch_size=_at_once(source.metadata),
        row_groups=None if group is None else [group],
        columns=None if columns is None else stored.names,
    )
    # pyarrow takes names for paths: `a` is also read as all of `a.b`.
    chosen = (part if columns is None else part.select(stored.names) for part in parts)
    for batch in named_batches(stored, chosen, name, row):
        row += batch.num_rows
        yield batch
    if row != end:
        raise OSError(f"{row} rows, and {end} in the footer")


def named_batches(
    stored: pa.Schema, batches: Iterable[pa.RecordBatch], name: str, row: int = 0
) -> Iterator[pa.RecordBatch]:
    """The batches of a file with this schema, in parts of at most `AT_ONCE` bytes, with names in place of the numbers
    of classes and values in place of dictionaries, and with `about(schema)`.

    row: number of rows before the batches, for messages.

    Raises:
        DataError: for a row that is too large, a number without a class, and text that is not UTF-8.
    """
    features = features_of(stored, name)
    schema = pa.schema([(field.name, named_type(field.type, features.get(field.name))) for field in stored])
    schema = with_about(schema, About(classes=classes_of(features)))
    for whole in batches:
        for batch in _parts(whole, name, row):
            table = named(pa.Table.from_batches([batch]), features, name, row)
            for part in table.combine_chunks().to_batches():
                _check_utf8(part, name, row + 1)
                row += part.num_rows
                yield part.cast(schema)


def _parts(batch: pa.RecordBatch, name: str, row: int) -> Iterator[pa.RecordBatch]:
    """The batch in parts of at most `AT_ONCE` bytes. Raises DataError for a row that is too large."""
    size = sum(map(_size, batch.columns))
    if size <= AT_ONCE or batch.num_rows <= 1:
        if size > LARGEST:
            raise DataError(
                f"{name}, row {row + 1}: got a row of {size >> 20} MiB; must be at most {LARGEST >> 20} MiB; divide it"
            )
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _parts(batch.slice(0, middle), name, row)
    yield from _parts(batch.slice(middle), name, row + middle)


def _size(array: pa.Array) -> int:
    """Bytes of an array once its dictionaries and views are replaced by their values."""
    data_type = array.type
    if pa.types.is_dictionary(data_type):
        if not _is_binary(data_type.value_type):
            return int(array.nbytes)
        lengths = pc.binary_length(array.dictionary).take(array.indices)
        return (pc.sum(lengths).as_py() or 0) + 4 * len(array)
    if pa.types.is_string_view(data_type):
        # Each view begins with its length, and many may show the same text.
        lengths = np.frombuffer(array.buffers()[1], np.int32)[4 * array.offset :: 4][: len(array)].astype(np.int64)
        return int(lengths[array.is_valid().to_numpy(zero_copy_only=False)].sum()) + 4 * len(array)
    if is_list(data_type):
        return 4 * len(array) + _size(array.flatten())
    if pa.types.is_struct(data_type):
        return sum(map(_size, array.flatten()))
    return int(array.nbytes)


def _is_binary(data_type: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(data_type) for test in tests)


def _check_utf8(batch: pa.RecordBatch, name: str, row: int) -> None:
    """Parquet does not require that text is UTF-8."""
    if (problem := _problem(batch)) is not None:
        number = next((i for i in range(batch.num_rows) if _problem(batch.slice(i, 1))), 0)
        raise DataError(f"{name}, row {row + number}: got {problem!r}; must be UTF-8; write the file again")


def _problem(batch: pa.RecordBatch) -> str | None:
    """Why Arrow takes a batch for damaged; None if it does not."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        return str(error).splitlines()[0]
    return None
