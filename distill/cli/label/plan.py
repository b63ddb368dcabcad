"""What is to be labelled, in units: the same for all processes that write to one folder."""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa

from distill.data import files
from distill.errors import ConfigError, UserError
from distill.runtime.storage import atomic, file_hashes, locks
from distill.runtime.storage.strict_json import read_json

INSIDE = ".distill-label"
"""Folder, in that of the labels, with what processes tell each other."""
_FILE = "plan.json"
SCHEMA = 1


class Changed(UserError):
    """A file, or the folder of labels, is not as it was when the labelling began. It is no fault of a unit, and ends
    the process."""


@dataclass(frozen=True)
class Unit:
    """Consecutive rows of one file, whose labels are one file."""

    name: str
    """Of the file of labels, without its ending."""
    source: str
    start: int
    rows: int

    @property
    def place(self) -> str:
        """As a message names it, with rows counted from 1."""
        return f"{self.source}, rows {self.start + 1} to {self.start + self.rows}"


@dataclass(frozen=True)
class Columns:
    text: tuple[str, ...]
    """One column, or two of pairs."""
    label: str
    """Column of given labels, which a file may lack."""
    soft: str
    """Name of the column of soft labels."""

    def of(self, rows: pa.Table) -> pa.Table:
        """The columns of a file that are copied. A label that the file lacks is null."""
        if self.label in rows.column_names:
            return rows.select([*self.text, self.label])
        return rows.select(list(self.text)).append_column(self.label, pa.nulls(rows.num_rows))

    @property
    def names(self) -> list[str]:
        """Of all that is written."""
        return [*self.text, self.label, self.soft]


@dataclass(frozen=True)
class Source:
    """A file, as it was when the folder of labels was begun."""

    name: str
    content: str
    """Hash of the rows that are read."""
    units: tuple[int, ...]
    """Rows of each unit."""


@dataclass(frozen=True)
class Plan:
    teacher: str
    """Hash of the files of the teacher."""
    backend: str
    scheme: str
    max_length: int
    kind: str
    labels: tuple[str, ...]
    """Names of the teacher's labels, in the order of its outputs; empty for a number."""
    tries: int
    """How often a unit is tried, each time by another process, before it is given up."""
    columns: Columns
    sources: tuple[Source, ...]

    @property
    def text(self) -> str:
        """As it is stored."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=2)

    @property
    def units(self) -> list[Unit]:
        """All units, in the order of the rows."""
        starts = ((s.name, at, n) for s in self.sources for at, n in zip(_starts(s.units), s.units, strict=True))
        return [Unit(f"{number:06d}", *each) for number, each in enumerate(starts)]


def _starts(sizes: Sequence[int]) -> list[int]:
    return [0, *accumulate(sizes)][:-1]


def of_teacher(folder: Path) -> str:
    """Hash of what a teacher is made from; a text about it is none of it."""
    every = [
        [name, content]
        for name, content in file_hashes.of_folder(folder)
        if not name.endswith(".md") and not any(part.startswith(".") for part in name.split("/"))
    ]
    return _hash(repr(every).encode())


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def source(file: str, columns: Columns, table: files.Table, most: int) -> Source:
    """A file and its units: each row group of a parquet file, in parts of at most `most` rows."""
    groups = _groups(file)
    sizes = groups if sum(groups) == table.rows.num_rows else [table.rows.num_rows]
    return Source(file, _content(columns.of(table.rows)), tuple(n for size in sizes for n in _parts(size, most)))


def _parts(rows: int, most: int) -> Iterator[int]:
    """Sizes of equal parts, as few as can be."""
    number = -(-rows // most)
    yield from (rows * (part + 1) // number - rows * part // number for part in range(number))


def _groups(file: str) -> list[int]:
    """Rows of each row group of a parquet file; empty for other files."""
    if not file.lower().endswith(".parquet"):
        return []
    import fsspec
    import pyarrow.parquet as pq

    with fsspec.open(file, "rb") as opened:
        metadata = pq.read_metadata(opened)
    return [rows for n in range(metadata.num_row_groups) if (rows := metadata.row_group(n).num_rows)]


def _content(rows: pa.Table) -> str:
    """Hash of the rows, which depends neither on the name of their file nor on how it is compressed."""
    digest = hashlib.sha256(repr(rows.schema.remove_metadata()).encode())
    for batch in rows.to_batches():
        digest.update(batch.serialize())
    return digest.hexdigest()[:16]


@lru_cache(maxsize=1)
def table(file: str, separator: str | None) -> files.Table:
    """The rows of one file, mapped into memory."""
    return files.read([file], "FILE", separator)


@lru_cache(maxsize=1)
def unchanged(source: Source, columns: Columns, separator: str | None) -> files.Table:
    """The rows of a file. Raises Changed unless they are those with which the labelling began."""
    try:
        found = table(source.name, separator)
    except UserError as error:
        raise Changed(error.messages) from error
    if set(columns.text) <= set(found.rows.column_names) and _content(columns.of(found.rows)) == source.content:
        return found
    raise Changed(
        f"{source.name}: got other rows than those with which the labelling began; must not change; restore the file "
        "and run the same command, or label what it is now into another folder"
    )


def forget() -> None:
    """Read files again, which may have changed since another command of this process read them."""
    table.cache_clear()
    unchanged.cache_clear()


def stored(folder: Path) -> Plan | None:
    """The plan by which a folder of labels was begun; None for a new or empty folder.

    Raises:
        ConfigError: for a folder with other files, and for one of another version.
    """
    file = folder / INSIDE / _FILE
    if not file.is_file():
        if folder.exists() and (not folder.is_dir() or any(path.name != INSIDE for path in folder.iterdir())):
            raise ConfigError(
                f"--out: got {folder}, which this command has not begun; must be a new or empty folder; choose another"
            )
        return None
    found = read_json(file)
    if found.pop("schema", None) != SCHEMA:
        raise ConfigError(
            f"--out: got {folder}, which another version of distill has begun; must be a new folder; choose another"
        )
    return _decoded(found)


def _decoded(found: dict[str, Any]) -> Plan:
    columns = found["columns"]
    lists = {
        "labels": tuple(found["labels"]),
        "columns": Columns(tuple(columns["text"]), columns["label"], columns["soft"]),
        "sources": tuple(Source(each["name"], each["content"], tuple(each["units"])) for each in found["sources"]),
    }
    return Plan(**found | lists)


def begun(folder: Path, plan: Plan, say: Callable[[str], object]) -> Plan:
    """Begin a folder of labels by a plan, unless it was begun. Returns the plan by which it was."""
    inside = folder / INSIDE
    inside.mkdir(parents=True, exist_ok=True)

    def wait(lock: Path) -> None:
        say(f"{folder}: another process begins it, which is waited for{locks.left(lock)}")

    with locks.held(inside / "lock", wait):
        if (known := stored(folder)) is not None:
            return known
        atomic.write_text(inside / _FILE, plan.text)
        return plan


def stamp(folder: Path) -> str | None:
    """Hash of the plan by which a folder of labels was begun; None if it is gone."""
    try:
        return _hash((folder / INSIDE / _FILE).read_bytes())
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
            return None
        raise


def stamp_of(plan: Plan) -> str:
    """What `stamp` returns for a folder that was begun by this plan."""
    return _hash(plan.text.encode())


def check(folder: Path, known: Plan, plan: Plan) -> None:
    """Raise ConfigError unless a plan is the one by which a folder was begun: for another teacher, other settings or
    other rows."""
    if (difference := _difference(known, plan)) is not None:
        raise ConfigError(f"--out: got {folder}, which was begun with {difference}; choose another folder")


def _difference(known: Plan, plan: Plan) -> str | None:
    """How a folder was begun where a plan differs, and what must be so; None for the same."""
    if known.teacher != plan.teacher:
        return "another teacher, or before its files changed; must have the labels of one teacher"
    for name in ("backend", "scheme", "max_length", "kind", "labels", "tries", "columns"):
        before, now = getattr(known, name), getattr(plan, name)
        if before != now:
            return f"{name} {_shown(before)}, and not {_shown(now)}; must be the same"
    for one, other in zip(known.sources, plan.sources, strict=False):
        if one.content != other.content:
            same = " as it was before it changed" if one.name == other.name else ""
            return f"the file {one.name}{same}, where {other.name} is given; must be of the same rows"
        if one.units != other.units:
            return f"{len(one.units)} units of {one.name}, and not {len(other.units)}; must be the same --rows"
    if len(known.sources) != len(plan.sources):
        return f"{len(known.sources)} files, and not {len(plan.sources)}; must be of the same files in the same order"
    return None


def _shown(value: Any) -> str:
    if isinstance(value, Columns):
        return ", ".join(value.names)
    return ", ".join(value) if isinstance(value, tuple) else str(value)
