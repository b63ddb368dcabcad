"""Record batches of a user's CSV, TSV, JSON or parquet file. A malformed file is refused with one message.

The standard library parses CSV in its strict mode: pyarrow accepts some quotes that are never closed, and then makes
one value of all lines after the quote. Rows are counted from 1 and without the header. Blank lines are not rows.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from distill.data import jsonl
from distill.data.lines import LONGEST, ROWS, Malformed, check_names, chunks, lines, no_rows
from distill.data.squad import is_squad
from distill.errors import DataError

EXTENSIONS = {
    ".csv": "csv", ".tsv": "csv", ".tab": "csv", ".txt": "csv",
    ".jsonl": "json", ".ndjson": "json", ".json": "json", ".parquet": "parquet",
}  # fmt: skip
"""Extension -> format. Text may be compressed: `.csv.gz`."""
SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
FOREIGN = (
    (b"PK\x03\x04", "a zip file or an Excel workbook", "export the sheet as CSV, or unpack the file"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook", "export the sheet as CSV"),
    (b"\x1f\x8b", "a gzip file", "add .gz to its name"),
    (b"PAR1", "a parquet file", "name it .parquet"),
    (b"%PDF", "a PDF", "export its rows as CSV"),
    (b"BZh", "a bzip2 file", "decompress it"),
    (b"\xfd7zXZ", "an xz file", "decompress it"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file", "decompress it"),
    (b"\xff\xfe\x00\x00", "UTF-32 text", "save it as UTF-8"),
    (b"\x00\x00\xfe\xff", "UTF-32 text", "save it as UTF-8"),
    (b"\xff\xfe", "UTF-16 text", "save it as UTF-8"),
    (b"\xfe\xff", "UTF-16 text", "save it as UTF-8"),
)
"""First bytes of a file that is not UTF-8 text -> content, and how to get text of it."""


def extension(name: str) -> tuple[str, bool]:
    """(extension in lower case, whether `.gz` follows it) of a file's name."""
    base = name.lower().replace("\\", "/").rpartition("/")[2]
    plain = base.removesuffix(".gz")
    return "".join(plain.rpartition(".")[1:]) if "." in plain else "", plain != base


def batches(
    file: BinaryIO, name: str, kind: tuple[str, bool], separator: str | None = None, schema: pa.Schema | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of an open file of `kind = extension(name)`, in batches of one schema.

    Raises:
        DataError: for a malformed file.
        jsonl.Wider: for a JSON file, unless `schema` or its first batch has the types of all rows.
    """
    suffix, compressed = kind
    source: Any = gzip.GzipFile(fileobj=file) if compressed else file
    try:
        if EXTENSIONS[suffix] == "parquet":
            yield from _parquet(source, name)
            return
        start = _start(source, name)
        with io.TextIOWrapper(source, "utf-8-sig", errors="surrogateescape", newline="") as text:
            if EXTENSIONS[suffix] == "csv":
                yield from _csv(text, name, separator or SEPARATORS[suffix], guess=separator is None)
            else:
                yield from jsonl.batches(text, name, _json_form(suffix, start), schema)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise DataError(f"{name}: got {str(error)!r}; must be a whole gzip file; compress or copy it again") from error
    except OSError as error:
        raise DataError(
            f"{name}: got {str(error.strerror or error)!r}; must be a file that can be read; check it and its rights"
        ) from error


def _json_form(suffix: str, start: bytes) -> jsonl.Form:
    """The form of a JSON file that begins with `start`."""
    if suffix != ".json":
        return "lines"
    return "array" if start.startswith(b"[") else "squad" if is_squad(start) else "lines"


def _start(file: Any, name: str) -> bytes:
    """The first bytes of a text file, without a BOM and white space. DataError if they are not those of UTF-8 text."""
    start = bytes(file.read(4096))
    file.seek(0)
    if not start:
        raise DataError(f"{name}: got an empty file; must have a row at least; write or copy it again")
    for magic, content, mend in FOREIGN:
        if start.startswith(magic):
            raise DataError(f"{name}: got {content}; must be UTF-8 text; {mend}")
    return start.removeprefix(b"\xef\xbb\xbf").lstrip()


_CSV = (
    ("unexpected end of data", "got a quote that is not closed; must be closed; close it, or write it as two quotes"),
    ("expected after", "got text after a closing quote; must be a separator or a new line; write a quote in a value as "
     "two quotes, and the whole value in quotes"),
    ("field larger than", f"got a value of more than {LONGEST:,} characters; must be shorter; close the quote that it "
     "begins with, or shorten it"),
)  # fmt: skip
"""(part of an error's text of the standard library, ours)."""


@contextmanager
def _long_values() -> Iterator[None]:
    limit = csv.field_size_limit(LONGEST)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _records(text: io.TextIOWrapper, name: str, separator: str) -> Iterator[list[str]]:
    """The header and the rows of a CSV, without blank lines. DataError names the row."""
    row = 0
    try:
        for record in csv.reader(lines(text), delimiter=separator, strict=True):
            if record:
                yield record
                row += 1
    except (Malformed, csv.Error) as error:
        message = str(error)
        if isinstance(error, csv.Error):
            other = f"got {message!r}; must be CSV as in RFC 4180; correct the row"
            message = next((ours for part, ours in _CSV if part in message), other)
        place = f"{name}, row {row}" if row else f"{name}, header"
        raise DataError(f"{place}: {message}") from error


def _csv(text: io.TextIOWrapper, name: str, separator: str, guess: bool) -> Iterator[pa.RecordBatch]:
    """Every value is text, as it stands in the file."""
    with _long_values():
        records = _records(text, name, separator)
        header = _header(next(records, []), name, separator, guess)
        schema = pa.schema([(column, pa.string()) for column in header])
        empty = True
        for rows in chunks(_of_width(records, len(header), name), lambda record: sum(map(len, record))):
            yield pa.record_batch([pa.array(column, pa.string()) for column in zip(*rows, strict=True)], schema=schema)
            empty = False
    if empty:
        raise no_rows(name)


def _header(record: list[str], name: str, separator: str, guess: bool) -> list[str]:
    """The names of the columns. `guess`: no separator was set, so a single name may come from a wrong one."""
    header = [column.strip() for column in record]
    if not header:
        raise DataError(f"{name}: got only blank lines; must have a header and a row; write or copy it again")
    other = next((mark for mark in ";\t|," if guess and len(header) == 1 and mark in record[0]), None)
    if other:
        shown = {"\t": r"\t"}
        raise DataError(
            f"{name}, header: got one column, {header[0][:80]!r}; must be separated by "
            f"'{shown.get(separator, separator)}'; set tasks.separator='{shown.get(other, other)}'"
        )
    check_names(header, f"{name}, header")
    return header


def _of_width(records: Iterable[list[str]], width: int, name: str) -> Iterator[list[str]]:
    for row, record in enumerate(records, 1):
        if len(record) != width:
            raise DataError(
                f"{name}, row {row}: got {len(record)} values; must be {width}, as in the header; put a value that "
                "contains a separator in quotes, or add the missing one"
            )
        yield record


def _parquet(file: Any, name: str) -> Iterator[pa.RecordBatch]:
    """Values that are stored as numbers of a dictionary are decoded."""
    magic = bytes(file.read(4))
    file.seek(0)
    if magic == b"PARE":
        raise DataError(f"{name}: got an encrypted file; must be plain parquet; decrypt it")
    if magic != b"PAR1":
        content = f"a file that begins with {magic!r}" if magic else "an empty file"
        raise DataError(f"{name}: got {content}; must be a parquet file; write it again, or correct its extension")
    row = 1
    try:
        with pq.ParquetFile(file, pre_buffer=False) as source:
            names = source.schema_arrow.names
            if not names:
                raise DataError(f"{name}: got no columns; must have one at least; write the file again")
            check_names(names, name)
            if not source.metadata.num_rows:
                raise no_rows(name)
            schema = pa.schema([(field.name, _decoded(field.type)) for field in source.schema_arrow])
            for batch in source.iter_batches(batch_size=ROWS):
                _check_utf8(batch, name, row)
                row += batch.num_rows
                yield batch.cast(schema)
            if row - 1 != source.metadata.num_rows:
                raise OSError(f"{row - 1} rows, and {source.metadata.num_rows} in the footer")
    except (pa.ArrowException, OSError, UnicodeError) as error:
        problem = str(error).strip().splitlines()[0][:200]
        raise DataError(f"{name}: got {problem!r}; must be a whole parquet file; copy or fetch it again") from error


def _decoded(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _check_utf8(batch: pa.RecordBatch, name: str, row: int) -> None:
    """Parquet does not require that text is UTF-8."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        number = next((i for i in range(batch.num_rows) if not _valid(batch.slice(i, 1))), 0)
        problem = str(error).splitlines()[0]
        raise DataError(f"{name}, row {row + number}: got {problem!r}; must be UTF-8; write the file again") from error


def _valid(batch: pa.RecordBatch) -> bool:
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
