"""What is to be labelled, in units: the same for all processes that write to one folder."""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from distill.data.kind_of import QUERIES
from distill.data.task_types import written
from distill.data.task_types.regression import REGRESSION
from distill.data.task_types.reranking import RERANKING
from distill.data.unfinished import INSIDE, LARGEST, PLAN
from distill.errors import ConfigError, UserError, discreet
from distill.runtime.storage import atomic, file_hashes, locks
from distill.runtime.storage.strict_json import read_json

SCHEMA = 4

Part = tuple[int, int, int]
"""Number of rows of a unit, and where they stand: row group and rows of it before them; first byte and end of their
lines; or nothing (0, 0), where they are the next rows of the file."""


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
    """Rows of the file before it."""
    rows: int
    place_in_file: tuple[int, int] = (0, 0)
    """As in `Part`."""

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
    choices: tuple[str, ...] = ()
    """One column with the choices of each row, or several with one each."""
    more: tuple[str, ...] = ()
    """Columns that belong to the label."""
    stating: tuple[str, ...] = ()
    """Columns that state something about a row or its label, by which a run reads it. They are written as text."""
    as_text: bool = False
    """Whether labels are written as text, because they are of different types in different files."""

    def of(self, rows: pa.Table) -> pa.Table:
        """The columns of a file that are copied. A column that the file lacks is null."""
        names, nothing = rows.column_names, pa.nulls(rows.num_rows)
        texts = [*self.stating, *([self.label] if self.as_text else [])]
        found = {name: rows[name] if name in names else nothing for name in self.copied}
        return pa.table(found | {name: _text(found[name]) for name in texts})

    @property
    def copied(self) -> list[str]:
        return [*self.text, *self.choices, self.label, *self.more, *self.stating]

    @property
    def names(self) -> list[str]:
        """Of all that is written."""
        return [*self.copied, self.soft]


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of single values as text. Lists and objects stay as they are, and so does a column that a file lacks."""
    kept = pa.types.is_nested(column.type) or pa.types.is_null(column.type)
    return column if kept else written.names(column)


@dataclass(frozen=True)
class Source:
    """A file, as it was when the folder of labels was begun."""

    name: str
    content: str
    """What depends on its content alone."""
    way: str
    """How rows are read, of `rows`."""
    names: tuple[str, ...]
    """Of all its columns."""
    kinds: tuple[str, ...]
    """Their types, as Arrow names them."""
    units: tuple[Part, ...]
    types: str = ""
    """Of the columns of lines, which some of the lines do not show: an Arrow schema, in base64."""
    readers: str = ""
    """Of a file that is parsed as a whole: hash of the code that decides how, and thus which rows a unit has."""
    folders: tuple[tuple[str, str | None], ...] = ()
    """The columns that the names of its folders state, each with its value."""


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
    most: int
    """Rows of a unit."""
    columns: Columns
    sources: tuple[Source, ...]
    separator: str | None = None
    """Between the values of a CSV; None for the usual one."""

    @property
    def text(self) -> str:
        """As it is stored: without what may be a secret in an address."""
        sources = tuple(replace(source, name=discreet(source.name)) for source in self.sources)
        return json.dumps({"schema": SCHEMA, **asdict(replace(self, sources=sources))})

    @property
    def reranks(self) -> bool:
        """Whether a student of the labels is a reranker. It learns the outputs of its teacher before the activation."""
        queried = [name.lower() for name in self.columns.text] in QUERIES
        return self.kind == RERANKING.name or (self.kind == REGRESSION.name and queried)

    @property
    def units(self) -> list[Unit]:
        """All units, in the order of the rows."""
        units = list[Unit]()
        for source in self.sources:
            start = 0
            for rows, *place in source.units:
                units.append(Unit(f"{len(units):06d}", source.name, start, rows, (place[0], place[1])))
                start += rows
        return units


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


def stored(folder: Path) -> Plan | None:
    """The plan by which a folder of labels was begun; None for a new or empty folder.

    Raises:
        ConfigError: for a folder with other files, and for one of another version.
    """
    inside = folder / INSIDE
    file, every = inside / PLAN, (inside, *inside.glob("*"), *inside.glob("[0-9a-f]*/*"))
    if (link := next((path for path in every if path.is_symlink()), None)) is not None:
        raise ConfigError(
            f"label.out: got {folder}, whose {link.relative_to(folder)} is a link; must be none, because nothing is "
            "written through links; choose another"
        )
    if not file.is_file():
        if folder.exists() and (not folder.is_dir() or any(path.name != INSIDE for path in folder.iterdir())):
            raise ConfigError(
                f"label.out: got {folder}, which this command has not begun; must be a new or empty folder; choose "
                "another"
            )
        return None
    try:
        found = read_json(file, LARGEST)
        if not isinstance(found, dict):
            raise ValueError(f"a {type(found).__name__}")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"label.out: got {file}, which cannot be read ({str(error)[:100]}); must be as it was written; remove the "
            "folder, or choose another"
        ) from error
    if found.pop("schema", None) != SCHEMA:
        raise ConfigError(
            f"label.out: got {folder}, which another version of distill has begun; must be a new folder; choose another"
        )
    try:
        return msgspec.convert(found, Plan)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"label.out: got {file}, which has other contents than it was written with ({str(error)[:100]}); must be "
            "as it was; remove the folder, or choose another"
        ) from error


def begun(folder: Path, plan: Plan, say: Callable[[str], object]) -> Plan:
    """Begin a folder of labels by a plan, unless it was begun. Returns the plan by which it was."""
    stored(folder)
    inside = folder / INSIDE
    inside.mkdir(parents=True, exist_ok=True)

    def wait(lock: Path) -> None:
        say(f"{folder}: another process begins it, which is waited for{locks.left(lock)}")

    with locks.held(inside / "lock", wait):
        if (known := stored(folder)) is not None:
            return known
        atomic.write_text(inside / PLAN, plan.text)
        return plan


def stamp(folder: Path) -> str | None:
    """Hash of the plan by which a folder of labels was begun; None if it is gone."""
    try:
        return _hash((folder / INSIDE / PLAN).read_bytes())
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
        raise ConfigError(f"label.out: got {folder}, which was begun with {difference}; choose another folder")


def _difference(known: Plan, plan: Plan) -> str | None:
    """How a folder was begun where a plan differs, and what must be so; None for the same."""
    if known.teacher != plan.teacher:
        return "another teacher, or before its files changed; must have the labels of one teacher"
    for name in ("backend", "scheme", "max_length", "kind", "labels", "tries", "separator", "columns"):
        before, now = getattr(known, name), getattr(plan, name)
        if before != now:
            return f"{name} {_shown(before)}, and not {_shown(now)}; must be the same"
    for one, other in zip(known.sources, plan.sources, strict=False):
        if one.content != other.content:
            same = " as it was before it changed" if discreet(one.name) == discreet(other.name) else ""
            return (
                f"the file {one.name}{same}, where {other.name} is given; must be the same bytes, from the same kind "
                "of place"
            )
        if one.readers != other.readers:
            return f"{one.name} as another version of distill or of pyarrow reads it; must be the same versions"
        if one.units != other.units:
            units = counted(len(one.units), "unit")
            return f"{units} of {one.name}, and not {len(other.units)}; must be the same label.rows"
    if len(known.sources) != len(plan.sources):
        before = counted(len(known.sources), "file")
        return f"{before}, and not {len(plan.sources)}; must be of the same files in the same order"
    return _moved(known, plan)


def _moved(known: Plan, plan: Plan) -> str | None:
    """As `_difference`, of the same files, by the columns that the names of their folders state."""
    for one, other in zip(known.sources, plan.sources, strict=True):
        if dict(one.folders) != dict(other.folders):
            return f"{_stated(one)} in the folders of {one.name}, and not {_stated(other)}; must be the same names"
    return None


def _stated(source: Source) -> str:
    return ", ".join(f"{name}={value}" for name, value in source.folders) or "no column"


def _shown(value: Any) -> str:
    if isinstance(value, Columns):
        return ", ".join(value.names)
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def counted(number: int, noun: str) -> str:
    """A number of things, as a sentence names it."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
