"""Documents in files, each of which is read when it is asked for, so that a corpus need not fit into memory."""

from __future__ import annotations

import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import IO, overload

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distill.data import parquet
from distill.data.files import limited, most_of
from distill.data.lines import NoRows
from distill.data.task_types.task_type import check_texts
from distill.errors import DataError

_OPEN = 64
"""Files that are open at once: a process may open few, and a corpus may have a file for each document."""


class Documents(Sequence[str]):
    """Texts, in UTF-8.

    Args:
        places: `[n, 3]` number of the file, first byte and end of each document.
        opened: opens the file with a number. At most `_OPEN` files are open at once.
    """

    def __init__(self, places: NDArray[np.int64], opened: Callable[[int], IO[bytes]]) -> None:
        self._places, self._opened, self._files = places, opened, dict[int, IO[bytes]]()
        weakref.finalize(self, _close, self._files)

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number, start, end = self._places[index].tolist()
        file = self._file(number)
        file.seek(start)
        return file.read(end - start).decode("utf-8", "replace")  # who reads a file that changes refuses it later

    def _file(self, number: int) -> IO[bytes]:
        if number not in self._files:
            if len(self._files) == _OPEN:
                self._files.pop(next(iter(self._files))).close()
            self._files[number] = self._opened(number)
        return self._files[number]

    def keep(self, order: NDArray[np.int64]) -> None:
        """Keep the documents with the numbers `order` [n], in this order."""
        self._places = self._places[order]


def _close(files: dict[int, IO[bytes]]) -> None:
    for file in files.values():
        file.close()


def of_text(paths: Sequence[Path]) -> Documents:
    """One document per line, without the white space around it. Blank lines are left out.

    Raises:
        DataError: for a line that is not UTF-8, or too long for the memory.
    """
    places = list[NDArray[np.int64]]()
    for number, path in enumerate(paths):
        with path.open("rb") as file:
            places.append(_in_file(number, _lines(file, path)))

    def opened(number: int) -> IO[bytes]:
        try:
            return paths[number].open("rb")
        except OSError as error:
            raise DataError(
                f"{paths[number]}: got {error.strerror or error}; must not change while it is read; run the same "
                "command again"
            ) from error

    return Documents(np.concatenate(places), opened)


def of_parquet(paths: Sequence[Path]) -> Documents:
    """The column `text`, without blank texts.

    Texts are decompressed into a temporary file, which is removed with the documents.

    Raises:
        DataError: for a file that is not parquet, is incomplete or lacks the column, for another type of column, for a
            null, and for a small file with texts that would fill the memory.
    """
    with ExitStack() as stack:
        file = stack.enter_context(tempfile.TemporaryFile())
        places = np.concatenate([_in_file(0, _copied(path, file)) for path in paths])
        found = Documents(places, lambda number: file)
        weakref.finalize(found, stack.pop_all().close)
        return found


def _in_file(number: int, spans: Iterator[tuple[int, int]]) -> NDArray[np.int64]:
    """[n, 3] places of documents in the file with this number."""
    flat = array("q")
    for span in spans:
        flat.extend((number, *span))
    return np.frombuffer(flat, np.int64).reshape(-1, 3) if flat else np.zeros((0, 3), np.int64)


def _lines(file: IO[bytes], path: Path) -> Iterator[tuple[int, int]]:
    """First byte and end of each line that is not blank, without the white space around it."""
    start = 0
    for row, line in enumerate(iter(partial(file.readline, parquet.LARGEST + 1), b"")):
        if len(line) > parquet.LARGEST:
            size = f"{parquet.LARGEST >> 20} MiB"
            raise DataError(f"{path}, line {row + 1}: got more than {size}; must be shorter; divide the document")
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{path}, line {row + 1}: got {error.reason}; must be UTF-8; convert it") from error
        rest = text.lstrip().removeprefix("\ufeff").lstrip()  # a mark of the encoding begins some files
        if body := rest.rstrip():
            before = text[: len(text) - len(rest)]
            first = start + len(before.encode("utf-8"))
            yield first, first + len(body.encode("utf-8"))
        start += len(line)


def _copied(path: Path, to: IO[bytes]) -> Iterator[tuple[int, int]]:
    """Append the texts of a parquet file to another. First byte and end of each in it."""
    start = to.tell()
    for text in _texts(path):
        if text.strip():
            start, began = start + to.write(text.encode("utf-8")), start
            yield began, start


def _texts(path: Path) -> Iterator[str]:
    """The column `text` of a parquet file, of which only a part is in memory at a time."""
    try:
        names = pq.read_schema(path).names
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path}: got {reason!r}; must be a whole parquet file; copy or fetch it again") from error
    if "text" not in names:
        raise DataError(f"{path}: got columns {names}; must have ['text']; add ['text']")
    row = 0
    with suppress(NoRows), path.open("rb") as file:
        most = most_of(file)
        for batch in limited(parquet.batches(file, str(path), most, columns=["text"]), str(path), most):
            check_texts(pa.Table.from_batches([batch]), ["text"], path)
            for text in batch["text"].to_pylist():
                if text is None:
                    raise DataError(f"{path}, row {row + 1}: got null in text; must be text; remove the row")
                yield text
                row += 1
