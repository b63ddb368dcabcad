"""A user's own files as one memory-mapped table.

A file is parsed once. Its rows are kept as an Arrow file in the part `tables` of the user's cache, under a key that
depends on the file's path and content.

torch is not imported, so that a bad file is refused within a second.
"""

from __future__ import annotations

import glob
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from distill.data import formats
from distill.data.about import About, about
from distill.data.inside import extension, inside, is_readable
from distill.data.joined import joined, with_partitions
from distill.data.jsonl import Wider
from distill.data.lines import EXPANSION, NoRows, too_large
from distill.data.separators import NAMES
from distill.data.unfinished import unfinished
from distill.errors import ConfigError, DataError, UserError, reason
from distill.runtime import outside, quoting
from distill.runtime.storage import cache, disk_errors, file_hashes, store
from distill.runtime.storage.checksums import fingerprint

Reader = Callable[..., Iterator[pa.RecordBatch]]
"""`formats.batches` for some of its settings."""

_ROWS = "rows.arrow"
HARMLESS = 2**27
"""Bytes that the rows of a file may take, however small it is."""
_MAGIC = frozenset("*?[")
_PLAIN = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".arrow", ".feather", ".conll")
_MENDS = {
    ".xls": "export its sheet as CSV", ".xlsx": "export its sheet as CSV", ".xlsm": "export its sheet as CSV",
    ".ods": "export its sheet as CSV",
    ".conllu": "it is a treebank: write its words and their tags as the two columns of a .conll file",
    ".spacy": "write its texts and spans as JSON Lines",
    **dict.fromkeys((".bz2", ".xz", ".zst", ".lz4", ".zip", ".tar", ".tgz", ".7z", ".rar"), "decompress it"),
}  # fmt: skip
"""Extension -> what to do with a file that is not read."""


@dataclass(frozen=True)
class Table:
    """Rows of one or several files, in the order of `files`.

    Attributes:
        rows: all columns, memory-mapped.
        files: names as the user gave them, or as a glob gave them.
        starts: for each file, the number of rows before it.
        about: for each file, what its reader tells besides its rows.
        kept: numbers, among all rows of the files, of `rows`, and -1 of rows that were added; None for all.
    """

    rows: pa.Table
    files: tuple[str, ...]
    starts: tuple[int, ...]
    about: tuple[About, ...] = ()
    kept: np.ndarray | None = None

    def only(self, flags: np.ndarray) -> Table:
        """The rows whose flag [rows] is set."""
        if flags.all():
            return self
        kept = np.flatnonzero(flags)
        return replace(self, rows=self.rows.take(kept), kept=kept if self.kept is None else self.kept[kept])

    def where(self, row: int) -> str:
        """File and row in it, counted from 1 and without the header, of the row that is counted from 0 in `rows`."""
        row = row if self.kept is None else int(self.kept[row])
        if row < 0:
            return f"{', '.join(self.files)}, an added document"
        number = bisect_right(self.starts, row) - 1
        inside = row - self.starts[number]
        if self.about and self.about[number].lines:
            return f"{self.files[number]}, line {self.about[number].lines[inside]} (text {inside + 1})"
        return f"{self.files[number]}, row {inside + 1}"

    @property
    def notes(self) -> tuple[str, ...]:
        """How files were read where they could have meant something else, in lines for the user."""
        about = zip(self.files, self.about, strict=False)
        return tuple(f"{file}: {note}" for file, each in about for note in each.notes)

    def noted(self, *notes: str) -> Table:
        """The table with other lines on how its first file was read."""
        first, *others = self.about or [About()] * len(self.files)
        return replace(self, about=(replace(first, notes=(*first.notes, *notes)), *others))

    def classes(self, column: str) -> tuple[str, ...]:
        """The names of a column's classes in the order of their numbers; empty unless all files state the same."""
        named = {each.classes.get(column, ()) for each in self.about}
        return named.pop() if len(named) == 1 else ()


def expand(paths: str | Sequence[str], key: str) -> list[str]:
    """Names of the files that paths, globs and URLs stand for. A glob's are sorted.

    Raises:
        ConfigError: about the setting `key`, for a path without a file.
    """
    given = [paths] if isinstance(paths, str) else list(paths)
    if not given or not all(isinstance(path, str) and path for path in given):
        raise ConfigError(f"{key}: got {paths!r}; must be a file, a glob or a list of them; set {key}=FILE")
    return list(dict.fromkeys(file for path in given for file in _matches(path, key)))


def read(
    paths: str | Sequence[str], key: str, separator: str | None = None, keys: Sequence[str] | None = None
) -> Table:
    """All rows of the files, as one table.

    Args:
        key: the setting that contains `paths`, for messages.
        separator: between the values of a CSV, or its name; if None, a comma, or a tab in .tsv, or what the header
            contains in its place.
        keys: of JSON files, the only keys that are columns; all when None.

    Raises:
        ConfigError: for a setting that is wrong.
        DataError: for a file that is malformed, or whose columns are not those of the first file.
    """
    separator = _checked_separator(separator)
    files = expand(paths, key)
    for file in files:
        _check_extension(file, key)
    files, tables, empty = _with_rows(files, lambda file: _table(file, key, separator, keys))
    starts = (0, *accumulate(table.num_rows for table in tables))[:-1]
    told = tuple(about(table.schema) for table in tables)
    rows, named = with_partitions(joined(files, tables), files, [table.num_rows for table in tables])
    whole = Table(rows.replace_schema_metadata(None), tuple(files), starts, told)
    notes = [f"{' and '.join(named)} is from the names of the folders"] * bool(named)
    notes += [f"{empty:,} files without rows beside it are left out"] * bool(empty)
    return whole.noted(*notes, *unfinished(files))


def _with_rows(files: list[str], read: Callable[[str], pa.Table]) -> tuple[list[str], list[pa.Table], int]:
    """The files with rows, these, and the number of other files. Raises NoRows if there are only others."""
    found: dict[str, pa.Table] = {}
    for file in files:
        try:
            found[file] = read(file)
        except NoRows:
            if len(files) == 1 or (file == files[-1] and not found):
                raise
    return [*found], [*found.values()], len(files) - len(found)


def _matches(path: str, key: str) -> list[str]:
    return _remote_matches(path, key) if "://" in path else _local_matches(path, key)


def _local_matches(path: str, key: str) -> list[str]:
    wanted = "must be a file, or a glob that matches one; correct the path"
    if os.path.isfile(path):
        return [path]
    if os.path.isdir(path):
        raise ConfigError(f"{key}: got the folder {path}; must be files; set {inside(path, key)}")
    if os.path.exists(path):
        raise ConfigError(f"{key}: got {path}, a device or a pipe; must be a file; write its rows to a file")
    if not _MAGIC & set(path):
        home = " (~ is not expanded)" if path.startswith("~") else ""
        raise ConfigError(f"{key}: got {path}, which does not exist{home}; {wanted}")
    files = sorted(file for file in glob.glob(path, recursive=True) if os.path.isfile(file))
    if files := [file for file in files if not os.path.basename(file).startswith("_") or is_readable(file)]:
        return files
    raise ConfigError(f"{key}: got {path}, which matches no file; {wanted}")


def _file_system(url: str, key: str) -> tuple[Any, str]:
    """(fsspec's file system, path in it) of a URL."""
    from fsspec.core import url_to_fs

    try:
        return url_to_fs(url)
    except ImportError as error:
        raise ConfigError(
            f"{key}: got {url}; must be of an installed file system ({error}); pip install what it names"
        ) from error
    except Exception as error:  # every file system raises errors of its own
        raise ConfigError(
            f"{key}: got {url}; must be a URL that fsspec supports ({reason(error)}); correct it, or download the file"
        ) from error


def _remote_matches(url: str, key: str) -> list[str]:
    system, path = _file_system(url, key)
    magic = "*" in url or "[" in url
    try:
        if not magic and system.isfile(path):
            return [url]
        files = sorted(file for file in system.glob(path) if system.isfile(file)) if magic else []
    except Exception as error:  # every file system raises errors of its own
        raise ConfigError(
            f"{key}: got {url}; must be a file that can be reached ({reason(error)}); "
            "check the address, the network and your rights, or download it"
        ) from error
    if not files:
        raise ConfigError(f"{key}: got {url}, where there is no file; must be a file or a glob; correct the address")
    return [system.unstrip_protocol(file) for file in files]


def _checked_separator(separator: str | None) -> str | None:
    r"""The separator of this name. A typed `\t` is a tab."""
    if separator is None:
        return None
    character = {**NAMES, r"\t": "\t"}.get(separator.lower(), separator)
    if len(character) != 1 or character in '"\r\n\0':
        raise ConfigError(
            f"tasks.separator: got {separator!r}; must be {', '.join(NAMES)}, or another character, not a quote"
            f"; set {quoting.setting('tasks.separator', 'semicolon')}"
        )
    return character


def _check_extension(file: str, key: str) -> None:
    suffix, compressed = extension(file)
    wanted = f"must end with {', '.join(_PLAIN)} or .csv.gz"
    if not is_readable(file):
        mend = _MENDS.get(suffix, "export it as CSV, or rename it")
        raise ConfigError(f"{key}: got {file}; {wanted}; {mend}")
    if compressed and suffix in formats.BINARY:
        raise ConfigError(f"{key}: got {file}; {wanted}; decompress it, as {suffix[1:]} is compressed already")


@contextmanager
def _source(file: str, key: str) -> Iterator[tuple[str, Callable[[], BinaryIO]]]:
    """(what changes when the file changes, function that opens it). Within the block there is a temporary copy, on the
    disk of the cache, of a file at a URL whose content may change without notice."""
    with ExitStack() as stack:
        try:
            state, opened = _found(file, key, stack)
        except UserError:
            raise
        except Exception as error:  # every file system raises errors of its own
            if isinstance(error, OSError) and error.errno in disk_errors.FULL:
                raise
            raise _unreadable(file, error) from error
        yield state, opened


def _found(file: str, key: str, stack: ExitStack) -> tuple[str, Callable[[], BinaryIO]]:
    if "://" not in file:
        return state_of(file), lambda: open(file, "rb")
    from fsspec.core import OpenFile

    system, path = _file_system(file, key)
    if (version := file_hashes.version(system.info(path))) is not None:
        return f"{file} {version}", lambda: OpenFile(system, path).open()
    with OpenFile(system, path) as source:
        copy, found = file_hashes.copied(source, cache.folder("tables"))
    stack.enter_context(copy)
    return f"{file} {found}", lambda: file_hashes.again(copy)


def version(url: str, key: str) -> str | None:
    """What is stated now about a file at a URL and changes with its content; None where `opened` copies it."""
    system, path = _file_system(url, key)
    try:
        system.invalidate_cache()
        return file_hashes.version(system.info(path))
    except Exception as error:  # every file system raises errors of its own
        raise _unreadable(url, error) from error


def state_of(file: str) -> str:
    """The path of a file, and the hash of its content."""
    return f"{os.path.abspath(file)} {file_hashes.sha256(Path(file))}"


def _unreadable(file: str, error: Exception) -> DataError:
    return DataError(f"{file}: got {reason(error)!r}; must be a file that can be read; check its rights")


def _table(file: str, key: str, separator: str | None, keys: Sequence[str] | None) -> pa.Table:
    """The rows of one file, from the cache if they are there."""
    with _source(file, key) as (state, opened):

        def make(rows: Path) -> None:
            _write(rows, opened, file, partial(formats.batches, separator=separator, keys=keys))
            if "://" not in file and state_of(file) != state:
                raise changing(file)

        return stored([state, separator, keys], make)


def changing(file: str) -> DataError:
    return DataError(
        f"{file}: got other rows while it was read; must not change then; wait for what writes it, and run the same "
        "command"
    )


def stored(made_from: list[Any], make: Callable[[Path], None]) -> pa.Table:
    """The memory-mapped rows that `make` writes to an Arrow file, from the cache if they are there.

    made_from: all that the rows depend on besides the code of the readers.
    """
    try:
        entry = store.get_or_make("tables", fingerprint([readers(), *made_from]), lambda folder: make(folder / _ROWS))
    except OSError as error:
        raise UserError(
            f"{error.filename or 'cache.dir'}: got {error.strerror or error}; must be writable, on a disk with "
            "free space, and within the limit of ulimit -f; free some, or set cache.dir=FOLDER in a run, and "
            "XDG_CACHE_HOME=FOLDER before other commands"
        ) from error
    return pa.ipc.open_file(pa.memory_map(str(entry / _ROWS))).read_all()


def readers() -> list[str]:
    """The versions on which the rows of a file depend: the code of this package, readers from outside of distill, and
    the library by which files are read."""
    return [file_hashes.of_code(Path(__file__).parent), outside.code(), pa.__version__]


def _write(rows: Path, opened: Callable[[], BinaryIO], file: str, reader: Reader) -> None:
    schema = None
    while True:
        try:
            with _readable(opened, file) as source:
                batches = limited(_batches(source, file, reader, schema), file, most_of(source))
                first = next(batches)
                with pa.OSFile(str(rows), "wb") as sink, pa.ipc.new_file(sink, first.schema) as writer:
                    for batch in chain([first], batches):
                        writer.write_batch(batch)
            return
        except Wider as wider:
            schema = wider.schema


@contextmanager
def opened(file: str, key: str) -> Iterator[tuple[str, Callable[[], BinaryIO]]]:
    """(what depends on the content of a file alone, function that opens it), for one who reads it part by part.

    Raises:
        ConfigError: about the setting `key`, for a file of another form.
        DataError: for a file that cannot be read.
    """
    _check_extension(file, key)
    with _source(file, key) as (state, open_file):
        place = file if "://" in file else os.path.abspath(file)
        yield state.removeprefix(place).strip(), lambda: _readable(open_file, file)


def streamed(
    source: BinaryIO, file: str, separator: str | None = None, schema: pa.Schema | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of an open file, part by part, as from `formats.batches`."""
    reader = partial(formats.batches, separator=_checked_separator(separator))
    return limited(_batches(source, file, reader, schema), file, most_of(source))


def _readable(opened: Callable[[], BinaryIO], file: str) -> BinaryIO:
    try:
        return opened()
    except Exception as error:  # every file system raises errors of its own
        raise _unreadable(file, error) from error


def _batches(source: BinaryIO, file: str, reader: Reader, schema: pa.Schema | None) -> Iterator[pa.RecordBatch]:
    try:
        yield from reader(source, file, extension(file), schema=schema, most=most_of(source))
    except (UserError, Wider):
        raise
    except Exception as error:
        if "://" not in file:
            raise
        raise _unreadable(file, error) from error


def most_of(source: BinaryIO) -> int:
    """Bytes that the rows of an open file may take in memory and on the disk."""
    size = source.seek(0, os.SEEK_END)
    source.seek(0)
    return max(HARMLESS, EXPANSION * size)


def limited(batches: Iterator[pa.RecordBatch], file: str, most: int) -> Iterator[pa.RecordBatch]:
    """The batches of a file. Raises DataError if a small file has rows that could fill the disk."""
    read = 0
    for batch in batches:
        read += batch.nbytes
        if read > most:
            raise too_large(file, read)
        yield batch
