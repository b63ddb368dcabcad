"""The rows of units, each read from its place in its file: a row group, or lines. No process holds or stores all rows.

A file in another form (CSV, one JSON value, compressed) is parsed once into the user's cache, and mapped into memory.
"""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from distill import config
from distill.data import files, jsonl, parquet
from distill.data.about import about
from distill.data.files import Table
from distill.data.inside import extension
from distill.data.joined import constant
from distill.data.labelled import usable_rows
from distill.data.lines import decoded
from distill.data.meant import with_lists
from distill.data.several_types import check_types
from distill.data.tagged_rows import with_lists_of_words
from distill.data.task_types import TaskType, multiple_choice
from distill.data.task_types.task_type import check_texts
from distill.data.task_types.token_classification import is_words
from distill.data.usual_columns import LABELS, LABELS_OF
from distill.errors import ConfigError, DataError, UserError
from distill.labelling.plan import Changed, Columns, Part, Source, Unit
from distill.runtime.storage.checksums import fingerprint

KEY = "label.files"
GROUPS, LINES, TABLE = "row groups", "lines", "table"
"""How the rows of a unit are read."""
_Opened = Callable[[], BinaryIO]


def head(file: str, separator: str | None) -> Table:
    """The first rows of a file, by which columns are chosen."""
    with files.opened(file, KEY) as (_, opened):
        return _head(opened, file, separator)


def _head(opened: _Opened, file: str, separator: str | None) -> Table:
    with opened() as source:
        return _table(next(files.streamed(source, file, separator)), file, 0)


def readers(way: str) -> str:
    """As in `Source.readers`."""
    return fingerprint(files.readers()) if way == TABLE else ""


def as_lists(table: Table, text: Sequence[str], label: str, kind: TaskType) -> Table:
    """The table as a run reads it: with lists in place of the text of lists, and of words that have a row each, for
    kinds that take lists. `label`: column of given labels; empty for one with a usual name."""
    if not (kind.per_token or kind.choices):
        return table
    one, other = (*text, None, None)[:2]
    settings = config.Task(text=one, text_pair=other, label=label or None)
    if kind.per_token:
        table = with_lists_of_words(settings, table, [], "", untagged=True)
    return with_lists(settings, table, kind.per_token)[0]


def scan(
    file: str, columns: Columns, kind: TaskType, separator: str | None, most: int, log: Callable[[str], object]
) -> Source:
    """A file and its units, after all of its rows were read, part by part, and checked.

    Args:
        most: rows of a unit.
        log: gets a line about each guess of the reader.

    Raises:
        ConfigError: for a missing column.
        DataError: for a row without a text that a run can use.
    """
    with files.opened(file, KEY) as (content, opened):
        if (way := _way(opened, file, columns, kind, separator)) != TABLE:
            schema, total = _through(opened, file, columns, kind, separator, log)
            types = base64.b64encode(schema.serialize()).decode() if way == LINES else ""
            if (parts := _PARTS[way](opened, total, most)) is not None:
                return Source(file, content, way, *_described(schema), tuple(parts), types)
        given = files.read([file], KEY, separator)
        _check_types(given, columns, kind)
        table = as_lists(given, columns.text, columns.label, kind)
        for note in table.notes:
            log(note)
        _check(table, columns, kind, file)
        units = tuple((size, 0, 0) for size in _sizes(table.rows.num_rows, most))
        return Source(file, content, TABLE, *_described(table.rows.schema), units, readers=readers(TABLE))


def _described(schema: pa.Schema) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(schema.names), tuple(map(str, schema.types))


def _way(opened: _Opened, file: str, columns: Columns, kind: TaskType, separator: str | None) -> str:
    way = {(".parquet", False): GROUPS, (".jsonl", False): LINES, (".ndjson", False): LINES}.get(extension(file))
    if way is None:
        return TABLE
    first = _head(opened, file, separator)
    read = as_lists(first, columns.text, columns.label, kind)
    return way if read is first else TABLE  # whether text is lists depends on all of its rows


def _through(
    opened: _Opened,
    file: str,
    columns: Columns,
    kind: TaskType,
    separator: str | None,
    log: Callable[[str], object],
) -> tuple[pa.Schema, int]:
    """(types of the columns, number of rows) of a file whose rows are checked."""
    schema: pa.Schema | None = None
    while True:
        try:
            with opened() as source:
                row = 0
                for batch in files.streamed(source, file, separator, schema):
                    part = _table(batch, file, row)
                    _check(part, columns, kind, file)
                    _check_types(part, columns, kind)
                    row, schema = row + batch.num_rows, batch.schema
        except jsonl.Wider as wider:
            schema = wider.schema
            continue
        assert schema is not None  # a file without rows is refused
        for note in about(schema).notes:
            log(f"{file}: {note}")
        return schema.remove_metadata(), row


def _table(batch: pa.RecordBatch, file: str, before: int) -> Table:
    """A part of a file, of which its messages name the right rows."""
    return Table(pa.Table.from_batches([batch]).replace_schema_metadata(None), (file,), (-before,))


def _check_types(table: Table, columns: Columns, kind: TaskType) -> None:
    """Raise DataError for a text, a choice or a label with values of several types. One that is named is the label."""
    labels = {*LABELS_OF.get(kind.architecture, LABELS)}
    usual = [name for name in table.rows.column_names if name.lower() in labels]
    check_types(table.rows, (*columns.text, *columns.choices, *([columns.label] if columns.label else usual)))


def _check(table: Table, columns: Columns, kind: TaskType, file: str) -> None:
    """Raise an error unless rows have the columns, and a text that a run can use."""
    names = table.rows.column_names
    for setting, wanted in (("text", columns.text), ("choices", columns.choices)):
        if missing := [name for name in wanted if name not in names]:
            raise ConfigError(
                f"label.{setting}: got {missing[0]}; must be a column of {file}, which has {', '.join(names)}; correct "
                "it"
            )
    texts = [name for name in columns.text if not (kind.per_token and is_words(table.rows[name].type))]
    # The type of a column that is empty so far is unknown; its first row is refused below.
    check_texts(table.rows, [name for name in texts if not pa.types.is_null(table.rows[name].type)], file)
    rows = table.rows
    for name in {*columns.text} - {*texts}:
        rows = rows.set_column(names.index(name), name, pc.binary_join(rows[name].cast(pa.list_(pa.string())), " "))
    joined = Table(rows, table.files, table.starts, table.about, table.kept)
    for group in [[name] for name in columns.text] if kind.extractive else [columns.text]:
        usable_rows(joined, group)
    if columns.choices:
        _check_choices(table, columns.choices, file)
        for row, found in enumerate(multiple_choice.choices_of(table.rows, columns.choices)):
            multiple_choice.check(found, table.where(row), ", ".join(columns.choices))


def _check_choices(table: Table, choices: Sequence[str], file: str) -> None:
    """Raise ConfigError for a single column that has no lists: the letters of a text are no choices."""
    given = table.rows[choices[0]].type
    if len(choices) == 1 and not pa.types.is_null(given) and not multiple_choice.is_choices(given):
        raise ConfigError(
            f"label.choices: got {choices[0]}, a column of {given} in {file}; must be lists of texts, or several "
            "columns with a choice each; name them"
        )


def _sizes(rows: int, most: int) -> Iterator[int]:
    """Sizes of equal parts, as few as can be."""
    number = -(-rows // most)
    yield from (rows * (part + 1) // number - rows * part // number for part in range(number))


def _groups(opened: _Opened, total: int, most: int) -> Iterable[Part]:
    with opened() as source:
        metadata = pq.read_metadata(source)
    for number in range(metadata.num_row_groups):
        before = 0
        for size in _sizes(metadata.row_group(number).num_rows, most):
            yield size, number, before
            before += size


def _lines(opened: _Opened, total: int, most: int) -> list[Part] | None:
    """None where lines are not rows, as where they end with a carriage return alone."""
    parts, sizes = list[Part](), _sizes(total, most)
    rows = start = end = 0
    wanted = next(sizes)
    with opened() as source:
        for line in source:
            end += len(line)
            rows += bool(line.strip())
            if rows == wanted:
                parts.append((rows, start, end))
                rows, start, wanted = 0, end, next(sizes, 0)
    return parts if rows == 0 and sum(size for size, *_ in parts) == total else None


_PARTS: dict[str, Callable[[_Opened, int, int], Iterable[Part] | None]] = {GROUPS: _groups, LINES: _lines}
"""Way -> (function that opens a file, its rows, most rows of a unit) -> the units of the file, in order."""


class Reader:
    """Reads the rows of units, in any order. The file of one unit at a time is known to be unchanged.

    Units of a row group in order are fastest.
    """

    def __init__(self, sources: Sequence[Source], columns: Columns, kind: TaskType, separator: str | None) -> None:
        self._sources: Mapping[str, Source] = {source.name: source for source in sources}
        self._columns, self._kind, self._separator = columns, kind, separator
        self._stack, self._source = ExitStack(), ""
        self._opened: _Opened | None = None
        self._state: object = None
        self._table: Table | None = None
        self._group: _Group | None = None

    def rows(self, unit: Unit) -> pa.Table:
        """The columns that are copied, of the rows of a unit. Raises Changed for a file that has changed."""
        source = self._sources[unit.source]
        while True:
            self._open(source)
            try:
                rows = self._read(source, unit)
            except UserError:
                if _state(source.name) == self._state:
                    raise
            else:
                if _state(source.name) == self._state:
                    break
            self.close()  # it was changed, or touched, while it was read
        if rows.num_rows != unit.rows:
            raise DataError(f"{unit.place}: got {rows.num_rows} rows; must be {unit.rows}; write the file again")
        for name, value in source.folders:
            rows = rows.append_column(name, constant(value, rows.num_rows))
        return self._columns.of(rows)

    def _open(self, source: Source) -> None:
        """Raise Changed unless the content of a file is that with which the labelling began."""
        if self._source == source.name and _state(source.name) == self._state:
            return
        self.close()
        self._state = _state(source.name)
        try:
            content, self._opened = self._stack.enter_context(files.opened(source.name, KEY))
        except UserError as error:
            raise Changed(error.messages) from error
        if content != source.content:
            raise Changed(
                f"{source.name}: got other rows than those with which the labelling began; must not change; restore "
                "the file and run the same command, or label what it is now into another folder"
            )
        self._source = source.name

    def close(self) -> None:
        """Close the files that are open. What is read after it is opened again."""
        if self._group is not None:
            self._group.close()
        self._source, self._table, self._group = "", None, None
        self._stack.close()

    def _read(self, source: Source, unit: Unit) -> pa.Table:
        assert self._opened is not None
        if source.way == GROUPS:
            number, start = unit.place_in_file
            group, self._group = self._group, None  # after an error it is read anew
            if group is None or group.number != number or group.position > start:
                if group is not None:
                    group.close()
                group = _Group(self._opened, source.name, number, self._columns.copied)
            rows = group.rows(start, start + unit.rows)
            self._group = group
            return rows
        if source.way == LINES:
            return _of_lines(self._opened, unit, source.types)
        if self._table is None:
            table = files.read([source.name], KEY, self._separator)
            self._table = as_lists(table, self._columns.text, self._columns.label, self._kind)
        return self._table.rows.slice(unit.start, unit.rows)


def _state(file: str) -> object:
    """What changes when a file does; None for one at a URL of which a copy is read."""
    if "://" in file:
        return files.version(file, KEY)
    try:
        status = os.stat(file)
    except OSError:
        return ""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class _Group:
    """A row group whose rows are read once, in order. The next unit of a process mostly has rows that come later."""

    def __init__(self, opened: _Opened, file: str, number: int, columns: Sequence[str]) -> None:
        self.number, self.position = number, 0
        self._stack = ExitStack()
        source = self._stack.enter_context(opened())
        self._batches = parquet.batches(source, file, None, number, columns)
        self._stack.callback(self._batches.close)
        self._left: pa.Table | None = None

    def rows(self, start: int, end: int) -> pa.Table:
        """Rows of the group; fewer if it has fewer. `start`: not before `position`."""
        parts = list[pa.Table]()
        while self.position < end:
            if self._left is None:
                if (batch := next(self._batches, None)) is None:
                    break
                self._left = pa.Table.from_batches([batch]).replace_schema_metadata(None)
            size = min((start if self.position < start else end) - self.position, self._left.num_rows)
            if self.position >= start:
                parts.append(self._left.slice(0, size))
            self._left = self._left.slice(size) if size < self._left.num_rows else None
            self.position += size
        return pa.concat_tables(parts)

    def close(self) -> None:
        self._stack.close()


def _of_lines(opened: _Opened, unit: Unit, types: str) -> pa.Table:
    first, end = unit.place_in_file
    with opened() as source:
        source.seek(first)
        lines = source.read(end - first)
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(types)))
    batches = jsonl.batches(decoded(io.BytesIO(lines)), unit.source, "lines", schema, before=unit.start)
    try:
        return pa.Table.from_batches([*batches]).replace_schema_metadata(None)
    except jsonl.Wider as error:
        raise DataError(
            f"{unit.place}: got values of other types than when the labelling began; must be the same rows; restore "
            "the file"
        ) from error
