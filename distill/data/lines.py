"""Lines of a text file, rows in chunks and names of columns: what CSV, TSV and JSON files share."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, TypeVar

from distill.errors import DataError

LONGEST = 1 << 23
"""Characters of a line, of a value of a CSV or of an object of a JSON array: all of them are in memory at once."""
EXPANSION = 200
"""Times its own size that the rows of a file may take."""
ROWS = 8192
CHARACTERS = 1 << 22
"""A chunk ends after this number of rows or of characters."""

COLUMNS = 10_000
"""Maximum number of columns of a CSV. A file with more does not hold texts and labels."""

T = TypeVar("T")


class Malformed(Exception):
    """`got X; must be Y; do Z` about the row that is being read."""


def decoded(source: BinaryIO) -> io.TextIOWrapper:
    """A file as text with its own line endings. Bytes that are not UTF-8 are found by `check_text`."""
    return io.TextIOWrapper(source, "utf-8-sig", errors="surrogateescape", newline="")


def check_text(text: str) -> None:
    """Raise Malformed for text that was decoded with `surrogateescape` and is not UTF-8, and for a NUL byte."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            byte = ord(text[error.start]) & 0xFF
            raise Malformed(f"got byte 0x{byte:02x}; must be UTF-8; save the file as UTF-8") from None
    elif "\x1b$" in text:  # logs of terminals have others
        raise Malformed("got an escape sequence of ISO-2022-JP or the like; must be UTF-8; save the file as UTF-8")
    if "\0" in text:
        raise Malformed("got a NUL byte; must be UTF-8 text; save the file as UTF-8, or remove the byte")


def lines(text: io.TextIOWrapper) -> Iterator[str]:
    """The lines with their endings. Raises Malformed for one that is too long, is not UTF-8 or contains a NUL byte."""
    while line := text.readline(LONGEST):
        if len(line) == LONGEST:
            raise Malformed(f"got a line of {LONGEST:,} characters or more; must be shorter; check its line endings")
        check_text(line)
        yield line


def chunks(rows: Iterable[T], size: Callable[[T], int]) -> Iterator[list[T]]:
    """Lists of rows, each with at most `ROWS` rows and about `CHARACTERS` characters."""
    chunk: list[T] = []
    characters = 0
    for row in rows:
        chunk.append(row)
        characters += size(row)
        if len(chunk) == ROWS or characters > CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def check_names(names: Sequence[str], place: str) -> None:
    """Raise DataError unless every column has a name, and no other column has the same one."""
    for number, column in enumerate(names, 1):
        if not column:
            raise DataError(
                f"{place}: got no name for column {number} of {len(names)}; must name every column; name it, or "
                "remove the column (pandas omits it with to_csv(..., index=False))"
            )
    counted = Counter(names)
    if repeated := next((column for column in names if counted[column] > 1), None):
        raise DataError(f"{place}: got two columns {repeated!r}; names must differ; rename or remove one of them")


class NoRows(DataError):
    """A file without rows."""


def no_rows(name: str) -> NoRows:
    return NoRows(f"{name}: got no rows; must have a row at least; add rows, or correct the path")


def too_large(name: str, size: int) -> DataError:
    """The error about a small file with `size` bytes of rows."""
    return DataError(
        f"{name}: got {size >> 20} MiB of rows, and more, in a smaller file; must have at most {EXPANSION} times its "
        "own size; write it without compression"
    )
