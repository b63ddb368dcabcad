"""Record batches of a user's CSV, TSV, JSON, CoNLL, fastText, parquet or Arrow file. A malformed file is refused, with
one message.

Rows are counted from 1 and without the header. Blank lines are not rows.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa

from distill.data import arrow_file, conll, delimited, fasttext, jsonl, parquet, scanner
from distill.data.lines import decoded, too_large
from distill.errors import DataError
from distill.runtime import outside

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
"""Extension -> what separates columns, unless the settings or the file state another separator."""
FOREIGN = (
    (b"PK\x03\x04", "a zip file or an Excel workbook", "export the sheet as CSV, or unpack the file"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook", "export the sheet as CSV"),
    (b"\x1f\x8b", "a gzip file", "add .gz to its name"),
    (b"PAR1", "a parquet file", "name it .parquet"),
    (b"ARROW1", "an Arrow file", "name it .arrow"),
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
IN_PLACE = (
    (b"version https://git-lfs", "a pointer of Git LFS", "run git lfs pull in its clone"),
    (b"<!doctype html", "a web page", "download the file itself"),
    (b"<html", "a web page", "download the file itself"),
)
"""First bytes, in small letters, of what may be in the place of a file -> content, and how to get the file."""


@dataclass(frozen=True)
class Text:
    """A text file that is read."""

    stream: io.TextIOWrapper
    name: str
    suffix: str
    """Extension of its name, without `.gz`."""
    start: bytes
    """Its first bytes, without a BOM and white space."""
    separator: str | None
    """What separates columns by the settings; None if they do not say."""
    schema: pa.Schema | None
    """The types of all rows, if they are known."""
    keys: Sequence[str] | None = None
    """The only keys of JSON that are columns; all when None."""


def _json(file: Text) -> Iterator[pa.RecordBatch]:
    if file.suffix != ".json" and re.match(rb"\[\s*\{", file.start):
        raise DataError(f"{file.name}: got an array of objects; must be one object a line; name it .json")
    form = scanner.form(file.start, whole=file.suffix == ".json")
    return jsonl.batches(file.stream, file.name, form, file.schema, file.keys)


def _words(file: Text) -> Iterator[pa.RecordBatch]:
    return conll.batches(file.stream, file.name, said=False)


def _rows(file: Text) -> Iterator[pa.RecordBatch]:
    if file.separator is None and file.start.startswith(b"__label__") and fasttext.is_fasttext(file.stream):
        file.stream.seek(0)
        return fasttext.batches(file.stream, file.name)
    file.stream.seek(0)
    as_words = file.separator is None and file.suffix != ".csv" and conll.is_conll(file.stream)
    file.stream.seek(0)
    if as_words:
        return conll.batches(file.stream, file.name, said=True)
    return delimited.batches(file.stream, file.name, SEPARATORS.get(file.suffix), file.separator)


TEXT: dict[str, Callable[[Text], Iterator[pa.RecordBatch]]] = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".txt", ".train", ".valid", ".test"), _rows),
    **dict.fromkeys((".conll", ".bio", ".iob", ".iob2"), _words),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), _json),
}
"""Extension -> reader of a text file, which may be compressed: `.csv.gz`."""
BINARY: dict[str, Callable[[BinaryIO, str, int | None], Iterator[pa.RecordBatch]]] = {
    ".parquet": parquet.batches,
    **dict.fromkeys((".arrow", ".feather"), arrow_file.batches),
}
"""Extension -> reader of another file: (file, its name, bytes that its rows may take) -> its rows."""
outside.registry("formats of text", TEXT)
outside.registry("other formats", BINARY)


def extension(name: str) -> tuple[str, bool]:
    """(extension in lower case, whether `.gz` follows it) of a file's name."""
    base = name.lower().replace("\\", "/").rpartition("/")[2]
    plain = base.removesuffix(".gz")
    return "".join(plain.rpartition(".")[1:]) if "." in plain else "", plain != base


def batches(
    file: BinaryIO,
    name: str,
    ending: tuple[str, bool],
    separator: str | None = None,
    schema: pa.Schema | None = None,
    most: int | None = None,
    keys: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of an open file of `ending = extension(name)`, in batches of one schema, with `about(schema)`.

    Args:
        most: bytes that the file may take when it is decompressed.
        keys: of a JSON file, the only keys that are columns; all when None.

    Raises:
        DataError: for a malformed file.
        jsonl.Wider: for a JSON file, unless `schema` or its first batch has the types of all rows.
    """
    suffix, compressed = ending
    try:
        _check_place(file, name)
        if suffix in BINARY:
            yield from BINARY[suffix](file, name, most)
            return
        if compressed:
            _check_expansion(file, name, most)
        source: Any = gzip.GzipFile(fileobj=file) if compressed else file
        start = _start(source, name)
        with decoded(source) as text:
            yield from TEXT[suffix](Text(text, name, suffix, start, separator, schema, keys))
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise DataError(f"{name}: got {str(error)!r}; must be a whole gzip file; compress or copy it again") from error
    except OSError as error:
        raise DataError(
            f"{name}: got {str(error.strerror or error)!r}; must be a file that can be read; check it and its rights"
        ) from error


def _check_place(file: BinaryIO, name: str) -> None:
    """Raise DataError for something else in the place of a file of rows."""
    start = bytes(file.read(4096)).removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    file.seek(0)
    for magic, content, mend in IN_PLACE:
        if start.startswith(magic):
            raise DataError(f"{name}: got {content}; must be a file of rows; {mend}")


def _check_expansion(file: BinaryIO, name: str, most: int | None) -> None:
    """Raise DataError for a gzip file with more bytes than `most`, before any of them is parsed."""
    size = 0
    with gzip.GzipFile(fileobj=file) as source:
        while part := source.read(1 << 20):
            size += len(part)
            if most is not None and size > most:
                raise too_large(name, size)
    file.seek(0)


def _start(file: Any, name: str) -> bytes:
    """The first bytes of a text file, without a BOM and white space. Raises DataError if they are not UTF-8."""
    start = bytes(file.read(4096))
    file.seek(0)
    if not start:
        raise DataError(f"{name}: got an empty file; must have a row at least; write or copy it again")
    for magic, content, mend in FOREIGN:
        if start.startswith(magic):
            raise DataError(f"{name}: got {content}; must be UTF-8 text; {mend}")
    return start.removeprefix(b"\xef\xbb\xbf").lstrip()
