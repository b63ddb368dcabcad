"""Record batches of a user's Arrow file: those that `datasets` writes (`data-*.arrow`), Feather of pandas, and others.

The form with a footer contains the form without, after 8 bytes, and is read so. What a compressed batch takes in memory
is read from its buffers before it is decoded (Arrow Columnar Format, "Encapsulated message format"; the offsets of
fields are those of `Message.fbs`).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

from distill.data.lines import no_rows, too_large
from distill.data.parquet import check_columns, named_batches
from distill.errors import DataError

LARGEST = 1 << 31
"""Bytes that a batch may take: all of it is in memory at once."""
HARMLESS, EXPANSION = 1 << 28, 8
"""Bytes that a compressed batch may take, however small its file is, and times the size of its file."""
_MAGIC, _BEFORE = b"ARROW1", 8
_END = b"\xff\xff\xff\xff\0\0\0\0"
_OLD = b"FEA1"
_HEADER, _DATA, _BUFFERS, _COMPRESSION = 2, 1, 2, 3
"""Numbers of fields: of a message, its content; of a dictionary, its batch; of a batch, the other two."""


def batches(file: BinaryIO, name: str, most: int | None) -> Iterator[pa.RecordBatch]:
    """The rows of a file. Raises DataError if it is malformed, or its rows take more bytes than `most`."""
    magic = bytes(file.read(_BEFORE))
    if len(magic) < _BEFORE:
        raise DataError(f"{name}: got {len(magic)} bytes; must be an Arrow file; write it again")
    if magic.startswith(_OLD):
        raise DataError(f"{name}: got Feather of version 1; must be version 2; write it again with a newer pyarrow")
    start, end = (_BEFORE, _MAGIC) if magic.startswith(_MAGIC) else (0, _END)
    try:
        whole = file.seek(-len(end), os.SEEK_END) + len(end)
        if file.read() != end:
            raise OSError("a file without its end")
        file.seek(start)
        _check(file, name, min(LARGEST, max(HARMLESS, EXPANSION * whole)), most)
        file.seek(start)
        with pa.ipc.open_stream(file) as source:
            check_columns(source.schema.names, name)
            empty = True
            for batch in named_batches(source.schema, _valid(source, name, most), name):
                empty = False
                yield batch
        if empty:
            raise no_rows(name)
    except (pa.ArrowException, OSError, UnicodeError, EOFError, struct.error, IndexError) as error:
        problem = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise DataError(f"{name}: got {problem!r}; must be a whole Arrow file; copy or write it again") from error


def _valid(source: pa.RecordBatchReader, name: str, most: int | None) -> Iterator[pa.RecordBatch]:
    """The batches that have rows, and no place outside of their buffers."""
    for batch in source:
        if most is not None and batch.num_rows > most:  # a column of nulls takes no bytes
            raise too_large(name, batch.num_rows)
        batch.validate(full=True)
        if batch.num_rows:
            yield batch


def _check(file: BinaryIO, name: str, largest: int, most: int | None) -> None:
    """Raise DataError for batches that would take more bytes than `most` all together, or `largest` alone."""
    total = 0
    for message in pa.ipc.MessageReader.open_stream(file):
        if message.type == "schema":
            continue
        size = _size(message)
        total += size
        if size > largest:
            raise DataError(
                f"{name}: got a batch of {size >> 20} MiB; must be at most {largest >> 20} MiB; write smaller batches"
            )
        if most is not None and total > most:
            raise too_large(name, total)


def _size(message: pa.ipc.Message) -> int:
    """Bytes of the buffers of a batch or a dictionary once they are decoded."""
    metadata, body = memoryview(message.metadata), memoryview(message.body or b"")
    (root,) = struct.unpack_from("<I", metadata)
    table = _below(metadata, root, _HEADER)
    if message.type == "dictionary":
        table = _below(metadata, table, _DATA)
    if not _field(metadata, table, _COMPRESSION):
        return len(body)
    vector, total = _below(metadata, table, _BUFFERS), 0
    (count,) = struct.unpack_from("<I", metadata, vector)
    for offset, length in struct.iter_unpack("<qq", metadata[vector + 4 : vector + 4 + 16 * count]):
        (decoded,) = struct.unpack_from("<q", body, offset) if length else (0,)
        total += decoded if decoded >= 0 else length  # -1: this buffer is not compressed
    return total


def _field(metadata: memoryview, table: int, number: int) -> int:
    """The place of a table's field; 0 where the table does not have it."""
    (back,) = struct.unpack_from("<i", metadata, table)
    (size,) = struct.unpack_from("<H", metadata, table - back)
    entry = 4 + 2 * number
    (place,) = struct.unpack_from("<H", metadata, table - back + entry) if entry < size else (0,)
    return table + place if place else 0


def _below(metadata: memoryview, table: int, number: int) -> int:
    """The place of the table or vector that a table's field leads to."""
    place = _field(metadata, table, number)
    if not place:
        raise OSError("a batch without content")
    (offset,) = struct.unpack_from("<I", metadata, place)
    return place + int(offset)
