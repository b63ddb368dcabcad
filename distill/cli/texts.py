"""Reads the texts for `distill.predict`: texts of the command line, lines of standard input, or rows of a file."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from distill.errors import ConfigError, DataError
from distill.runtime import quoting, streams
from distill.runtime.cells import plain

if TYPE_CHECKING:  # these take a second to import, and --help must not wait for them
    import pyarrow as pa

    from distill.data.files import Table
    from distill.data.task_types import TaskType
    from distill.deploy.export.record import Record

_AT_ONCE = 1024
"""Rows of a file that are Python objects at the same time."""
_LONGEST = 1 << 23
"""Characters of a line of standard input, which is in memory as a whole."""
_MARK = b"\xef\xbb\xbf"
"""Byte-order mark, which some programs put before a text."""
_PIPE = "pipe UTF-8 lines into it, or write them to a file and set --file FILE"


@dataclass(frozen=True)
class Row:
    """The input of the model for a row, and the values that the output shows of it."""

    asked: Any
    """A text, a pair, a list of words, or texts with choices."""
    shown: tuple[Any, ...]
    """A value for each of the source's columns."""


@dataclass(frozen=True)
class Source:
    """Rows in their order."""

    columns: tuple[str, ...]
    """All columns of the file, or `text`."""
    rows: Iterable[Row]
    total: int | None
    """Number of rows; None if it is unknown."""
    where: Callable[[int], str]
    """The row that is counted from 0, as a message names it."""
    notes: tuple[str, ...] = ()
    """Guesses, for the user to read before they are used."""


def source(options: argparse.Namespace, record: Record | None, kind: TaskType) -> Source:
    """The texts that the options name. `record`: None for a folder whose columns are unknown.

    Raises:
        ConfigError: for options that do not go together, or do not suit the model.
        DataError: for a file that is malformed, and for a row without text.
    """
    if options.file is None:
        return _without_file(options, record, kind)
    if options.texts:
        raise ConfigError(f"TEXT: got {options.texts[0]!r} and --file; must be one of the two; remove the other")
    from distill.data import files
    from distill.data.several_types import check_types

    given = files.read(options.file, "tasks.file", options.separator)
    own = _expected(options, record, kind)
    known = options.text is not None or (bool(own) and {*own} <= {*given.rows.column_names})
    table, read = (given, given) if known else with_titles(given, kind)
    table, read = _read(options, table, read, kind)
    names = tuple(table.rows.column_names)
    text, choices, guessed = _columns(options, record, read, kind)
    check_types(given.rows, (*text, *choices))
    text = text[: kind.layout.asked or None]
    notes = [f"{table.files[0]}: the text is from {' and '.join([*text, *choices])}"] if guessed else []
    return Source(names, _of_file(table, read, text, choices), table.rows.num_rows, table.where, (*table.notes, *notes))


def _without_file(options: argparse.Namespace, record: Record | None, kind: TaskType) -> Source:
    for name in ("text", "text_pair", "choices", "separator"):
        if (value := getattr(options, name)) is not None:
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{option}: got {value}; must be used with --file; add --file FILE")
    if kind.choices:
        raise ConfigError(
            "TEXT: got single texts; must be questions with choices for this model; write them to a file with a "
            "column of lists or a column for each choice, and set --file FILE"
        )
    columns = _expected(options, record, kind)
    if len(columns) == 2:
        raise ConfigError(
            f"TEXT: got single texts; must be pairs for this model ({', '.join(columns)}); write them to a "
            "file of two columns, and set --file FILE"
        )
    if options.texts and os.path.isfile(options.texts[0]):
        name = options.texts[0]
        raise ConfigError(f"TEXT: got {name}, which is a file; must be texts; set {quoting.command(['--file', name])}")
    if options.texts:
        rows = [Row(text, (text,)) for text in options.texts]
        return Source(("text",), rows, len(rows), lambda row: f"texts, number {row + 1}")
    if sys.stdin is None or "stdin" in streams.closed:
        raise ConfigError(f"standard input: got a closed one; must be open, as no TEXT is given; {_PIPE}")
    if sys.stdin.isatty():
        raise ConfigError("TEXT: got nothing; must be texts; add them, pipe lines into it, or set --file FILE")
    return Source(("text",), _of_stdin(), None, lambda row: f"standard input, line {row + 1}")


def _of_stdin() -> Iterator[Row]:
    """A row for each line. Only a newline ends one, with a carriage return before it or without."""
    number = 0
    try:
        while line := sys.stdin.buffer.readline(_LONGEST + 1):
            if number == 0:
                line = line.removeprefix(_MARK)
            number += 1
            text = _decoded(line.removesuffix(b"\n").removesuffix(b"\r"), f"standard input, line {number}")
            yield Row(text, (text,))
    except OSError as error:
        raise DataError(
            f"standard input, line {number + 1}: got {error.strerror or error}; must be lines that can be read; {_PIPE}"
        ) from error


def of_stdin() -> str:
    """All of standard input as one text, without the newline at its end.

    Raises:
        ConfigError: for a closed one.
        DataError: for one that is too long, no UTF-8, or cannot be read.
    """
    if sys.stdin is None or "stdin" in streams.closed:
        raise ConfigError("standard input: got a closed one; must be open, as TEXT is -; pipe a text into it")
    try:
        given = sys.stdin.buffer.read(_LONGEST + 1)
    except OSError as error:
        why = error.strerror or error
        raise DataError(f"standard input: got {why}; must be a text that can be read; pipe one into it") from error
    if len(given) > _LONGEST:
        raise DataError(f"standard input: got more than {_LONGEST:,} bytes; must be shorter; pipe a part of it")
    return _decoded(given.removeprefix(_MARK).removesuffix(b"\n").removesuffix(b"\r"), "standard input")


def _decoded(line: bytes, place: str) -> str:
    if len(line) > _LONGEST:
        raise DataError(f"{place}: got more than {_LONGEST:,} bytes; must be shorter; end each text with a newline")
    if b"\0" in line:
        raise DataError(f"{place}: got a NUL byte; must be UTF-8 text; convert it to UTF-8, or remove the byte")
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        wrong = f"got byte 0x{line[error.start]:02x}"
        raise DataError(f"{place}: {wrong}; must be UTF-8 text; convert it to UTF-8") from error


def with_titles(table: Table, kind: TaskType) -> tuple[Table, Table]:
    """(rows that are shown, the same rows as a run reads them): documents of BEIR, which a retriever reads with their
    titles."""
    import pyarrow as pa

    from distill.data.judged_texts import joined
    from distill.data.task_types.task_type import is_text

    rows, names = table.rows, {*table.rows.column_names}
    is_beir = "_id" in names or ("id" in names and names <= {"id", "title", "text", "metadata"})
    if not (kind.separate and kind.grouped and {"title", "text"} <= names and is_beir):
        return table, table
    columns = [rows["title"], rows["text"]]
    if not all(is_text(column.type) for column in columns):
        return table, table
    texts = joined([column.cast(pa.string()) for column in columns])
    read = replace(table, rows=rows.set_column(rows.column_names.index("text"), "text", texts))
    note = "title and text are read as one text, as in a folder of BEIR; --text text reads the text alone"
    return table.noted(note), read


def _read(options: argparse.Namespace, table: Table, read: Table, kind: TaskType) -> tuple[Table, Table]:
    """(rows that are shown, the same rows as a run reads them): with lists in place of words that have a row each and,
    as a run reads them, in place of the text of lists, for kinds that take lists."""
    if not (kind.per_token or kind.choices):
        return table, read
    from distill import config
    from distill.data.meant import with_lists
    from distill.data.tagged_rows import with_lists_of_words

    settings, notes = config.Task(text=options.text, text_pair=options.text_pair), list[str]()
    if kind.per_token:
        read = with_lists_of_words(settings, table, notes, table.files[0], untagged=True)
    told = [note.removeprefix(f"{table.files[0]}: ") for note in notes]  # which a table puts before its notes
    shown = table if read.rows.num_rows == table.rows.num_rows else read.noted(*told)
    return shown, with_lists(settings, read, kind.per_token)[0]


def _expected(options: argparse.Namespace, record: Record | None, kind: TaskType) -> tuple[str, ...]:
    """The text columns that a model was made from, or names for those that its rows have; empty if they are unknown."""
    from distill.models.families.sentence import columns_of_cross_encoder

    stated = record.columns if record is not None else ()
    return stated or (("question", "context") if kind.extractive else columns_of_cross_encoder(options.folder))


def _columns(
    options: argparse.Namespace, record: Record | None, table: Table, kind: TaskType
) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """The text columns and those of the choices: those of the options, those of the task, or the most likely ones; and
    whether they are guessed. All rows are checked."""
    from distill import config
    from distill.data.columns import check_header, texts_of
    from distill.data.task_types.multiple_choice import check, choices_of
    from distill.data.task_types.task_type import check_texts
    from distill.data.task_types.token_classification import is_words

    expected, file = _expected(options, record, kind), table.files[0]
    listed = _listed(options.choices, table) if kind.choices and options.choices else None
    settings = config.Task(text=options.text, text_pair=options.text_pair, choices=listed)
    known = record.choices if record else ()
    text, choices, guessed = texts_of(settings, table.rows, expected, known, kind.architecture, "tasks", file)
    if guessed:
        check_header(text, table.rows, "tasks", file)
    check_width(text, expected, "this model")
    if not kind.per_token or not is_words(table.rows[text[0]].type):
        check_texts(table.rows, text, file)
    for column in text:
        if table.rows[column].null_count:
            row = table.rows[column].is_null().index(True).as_py()
            raise DataError(f"{table.where(row)}: got no text in column {column}; must be text; write it, or remove it")
    for row, found in enumerate(choices_of(table.rows, choices) if choices else ()):
        check(found, table.where(row), ", ".join(choices))
    return text, choices, guessed


def check_width(columns: Sequence[str], expected: Sequence[str], model: str) -> None:
    """ConfigError unless these are as many text columns as a model was made from, if those are known.

    Args:
        model: as a message names it.
    """
    if expected and len(columns) != len(expected):
        raise ConfigError(
            f"--text: got {', '.join(columns)}; must be {len(expected)} for {model} ({', '.join(expected)}); "
            f"set --text COLUMN{' --text-pair COLUMN' * (len(expected) == 2)}"
        )


def _listed(value: str, table: Table) -> list[str]:
    """The columns in `--choices A,B`, of which one may have a comma in its name."""
    return [value] if value in table.rows.column_names else value.split(",")


def _of_file(table: Table, read: Table, text: Sequence[str], choices: Sequence[str]) -> Iterator[Row]:
    """The rows of a table, shown as they are in it, and asked as they are in `read`."""
    from distill.data.asked import asked

    for start in range(0, table.rows.num_rows, _AT_ONCE):
        part = table.rows.slice(start, _AT_ONCE)
        shown = zip(*(_values(part, name, table.where(start)) for name in part.column_names), strict=True)
        yield from map(Row, asked(read.rows.slice(start, _AT_ONCE), text, choices), shown)


def _values(part: pa.Table, name: str, place: str) -> list[Any]:
    """The values of a column as values of JSON. Raises DataError for dates that Python cannot express."""
    try:
        return [plain(value) for value in part[name].to_pylist()]
    except (ValueError, OverflowError) as error:
        raise DataError(
            f"{place}: got a value of column {name} that cannot be written ({str(error)[:80]}), in this row or one of "
            f"the {_AT_ONCE:,} after it; must be a date from year 1 to 9999; correct it, or remove the column"
        ) from error
