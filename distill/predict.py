"""`python -m distill.predict FOLDER [TEXT ...]`: predictions of a model folder for texts, or for the rows of a file."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from distill.errors import ConfigError, DataError, UserError, printable

if TYPE_CHECKING:  # these take a second to import, and --help must not wait for them
    from distill.data.files import Table
    from distill.data.kinds import Kind
    from distill.export.record import Record

FORMS = ("jsonl", "csv")
KEYS = ("text", "text_pair")
"""Keys of the texts in a line of the output, before `choices`."""
_OPTION = re.compile(r"\btasks\.(text_pair|text|choices|separator|file)\b(=?)")
"""Settings in messages of distill.data, which are options here."""


@dataclass(frozen=True)
class Source:
    """Texts, pairs of texts, or texts in words, in their order."""

    rows: Iterable[tuple[Any, ...]]
    total: int | None
    """Number of rows; None if it is unknown."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message.removeprefix('argument ')}; see python -m distill.predict --help")


def _parser() -> _Parser:
    parser = _Parser("python -m distill.predict", description=(__doc__ or "").partition(": ")[2])
    parser.add_argument("folder", metavar="FOLDER", help="an exported folder, or one that transformers loads")
    parser.add_argument("texts", metavar="TEXT", nargs="*", help="without texts and --file: lines of standard input")
    parser.add_argument("--file", help="CSV, TSV, JSONL or parquet; a glob or a URL too")
    parser.add_argument("--text", metavar="COLUMN", help="column of the texts; by default that of the task")
    parser.add_argument("--text-pair", metavar="COLUMN", help="column of the second text of each pair")
    parser.add_argument(
        "--choices", metavar="COLUMN[,COLUMN]", help="of multiple choice: a column of lists, or one for each choice"
    )
    parser.add_argument("--separator", help="between the values of a CSV")
    parser.add_argument("--output", metavar="FILE", help="by default standard output")
    parser.add_argument("--format", metavar="FORMAT", type=_form, help="jsonl or csv; by default that of --output")
    parser.add_argument("--backend", help="torch, onnxruntime, ...; by default that of the fastest artifact")
    parser.add_argument("--scheme", help="fp32, int8, ...; by default that of the fastest artifact")
    parser.add_argument("--batch-size", metavar="N", type=_count, default=32, help="texts in a batch (32)")
    return parser


def _form(value: str) -> str:
    if value not in FORMS:
        raise argparse.ArgumentTypeError(f"got {value}; must be {' or '.join(FORMS)}; correct it")
    return value


def _count(value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise argparse.ArgumentTypeError(f"got {value}; must be a whole number from 1; correct it")
    return int(value)


def main(arguments: list[str] | None = None) -> int:
    """Exit code: 0, 2 for an error that the user can correct, 130 for Ctrl-C."""
    try:
        _predict(_parser().parse_intermixed_args(arguments))
    except UserError as error:
        lines = [_OPTION.sub(_as_option, message) for message in error.messages]
        sys.stderr.write("\n".join(lines) + "\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        return 130
    except BrokenPipeError:
        # The next program, such as `head`, has what it wants. Python would flush again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _as_option(match: re.Match[str]) -> str:
    return f"--{match[1].replace('_', '-')}{' ' if match[2] else ''}"


def _predict(options: argparse.Namespace) -> None:
    from distill.export.record import Heads, located, read, read_any

    folder = located(options.folder)
    stored = read_any(folder)
    # Heads of one encoder read the same texts.
    record = read(folder / stored.heads[0]) if isinstance(stored, Heads) else stored
    _check_output(options)
    kind = _kind(folder, record)
    source = _source(options, record, kind)  # before torch is imported, so that a wrong file is refused at once

    from distill import serve
    from distill.data.encode import batches
    from distill.machine import silence
    from distill.progress import Bar
    from distill.serve.model import joined

    silence()
    model = serve.load(folder, backend=options.backend, scheme=options.scheme)
    done, columns = 0, KEYS[: len(record.columns)] if record else KEYS
    with _opened(options) as write, Bar(_console(options, source), "predict", source.total or 0) as bar:
        for rows in batches(source.rows):
            texts: Any = [row[0] if len(row) == 1 else row for row in rows]
            predictions = model.predict(texts, options.batch_size)
            pairs = zip(rows if kind.choices else map(joined, rows), predictions, strict=True)
            write([_named(columns, row, kind) | prediction for row, prediction in pairs])
            done += len(rows)
            bar.update(done, f"texts, {model.backend} {model.scheme}")


def _kind(folder: Path, record: Record | None) -> Kind:
    """The kind of a model folder; that of a folder without a record is known by its head."""
    from distill.data.kinds import KINDS, kind_of_model
    from distill.family.head import stored_head

    if record is not None:
        return record.kind
    head = stored_head(folder)
    if head is None:
        return KINDS["classification"]  # refused when it is loaded
    return kind_of_model(head.problem, head.outputs, head.architecture)


def _named(columns: Sequence[str], row: Sequence[Any], kind: Kind) -> dict[str, Any]:
    """The texts of a row by their keys in the output."""
    if not kind.choices:
        return dict(zip(columns, row, strict=False))
    return dict(zip(KEYS, row[:-1], strict=False)) | {"choices": row[-1]}


def _console(options: argparse.Namespace, source: Source) -> Any:
    """A console for the progress bar; None without a bar: results on the same terminal would break it up."""
    from rich.console import Console

    console = Console(stderr=True)
    shown = console.is_terminal and source.total and (options.output is not None or not sys.stdout.isatty())
    return console if shown else None


def _source(options: argparse.Namespace, record: Record | None, kind: Kind) -> Source:
    """The texts that the options name. `record`: None for a folder whose columns are unknown."""
    if options.file is None:
        if unused := [
            name for name in ("text", "text_pair", "choices", "separator") if getattr(options, name) is not None
        ]:
            name = unused[0].replace("_", "-")
            raise ConfigError(f"--{name}: got {getattr(options, unused[0])}; must be used with --file; add --file FILE")
        if kind.choices:
            raise ConfigError(
                "TEXT: got single texts; must be questions with choices for this model; write them to a file with a "
                "column of lists or a column for each choice, and set --file FILE"
            )
        columns = record.columns if record is not None else ("question", "context") if kind.extractive else ()
        if len(columns) == 2:
            raise ConfigError(
                f"TEXT: got single texts; must be pairs for this model ({', '.join(columns)}); write them to a "
                "file of two columns, and set --file FILE"
            )
        if not options.texts and sys.stdin.isatty():
            raise ConfigError("TEXT: got nothing; must be texts; add them, pipe lines into it, or set --file FILE")
        if options.texts:
            return Source([(text,) for text in options.texts], len(options.texts))
        return Source(_of_stdin(), None)
    if options.texts:
        raise ConfigError(f"TEXT: got {options.texts[0]!r} and --file; must be one of the two; remove the other")
    from distill.data import files

    table = files.read(options.file, "tasks.file", options.separator)
    for note in table.notes:
        sys.stderr.write(f"{printable(note)}\n")
    if kind.choices:
        return Source(_with_choices(options, record, table), table.rows.num_rows)
    columns = _columns(options, record, table)
    columns = columns[:1] if kind.separate else columns
    return Source(_of_file(table, columns), table.rows.num_rows)


def _of_stdin() -> Iterator[tuple[str, ...]]:
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")
    try:
        for line in sys.stdin:
            yield (line.removesuffix("\n"),)
    except UnicodeDecodeError as error:
        raise DataError("standard input: got bytes that are not UTF-8; must be UTF-8 text; convert it") from error


def _columns(options: argparse.Namespace, record: Record | None, table: Table) -> tuple[str, ...]:
    """The text columns: those of the options, those of the task, or the most likely ones."""
    from distill import config
    from distill.data.columns import check_texts, text_columns
    from distill.data.kinds.token_classification import is_words

    expected, file = record.columns if record else (), table.files[0]
    set_by_user = options.text is not None or options.text_pair is not None
    if expected and not set_by_user and set(expected) <= set(table.rows.column_names):
        columns = expected
    else:
        settings = config.Task(text=options.text, text_pair=options.text_pair)
        columns = text_columns(settings, table.rows, "tasks", file)
    if expected and len(columns) != len(expected):
        raise ConfigError(
            f"--text: got {', '.join(columns)}; must be {len(expected)} for this model ({', '.join(expected)}); "
            f"set --text COLUMN{' --text-pair COLUMN' * (len(expected) == 2)}"
        )
    if record is None or not record.kind.per_token or not is_words(table.rows[columns[0]].type):
        check_texts(table.rows, columns, file)
    for column in columns:
        if table.rows[column].null_count:
            row = table.rows[column].is_null().index(True).as_py()
            raise DataError(f"{table.where(row)}: got no text in column {column}; must be text; write it, or remove it")
    return columns


def _with_choices(options: argparse.Namespace, record: Record | None, table: Table) -> Iterator[tuple[Any, ...]]:
    """Rows of one text or two and a list of choices, all checked before the first is returned."""
    from distill import config
    from distill.data.columns import check_texts, choice_columns
    from distill.data.kinds.multiple_choice import check, choices_of

    text, choices = (record.columns, record.choices) if record else ((), ())
    asked = options.text or options.text_pair or options.choices
    if asked or not text or not {*text, *choices} <= set(table.rows.column_names):
        given = options.choices.split(",") if options.choices else None
        settings = config.Task(text=options.text, text_pair=options.text_pair, choices=given)
        text, choices = choice_columns(settings, table.rows, "tasks", table.files[0])
    check_texts(table.rows, text, table.files[0])
    for row, found in enumerate(choices_of(table.rows, choices)):
        check(found, table.where(row), ", ".join(choices))
    return _questions(table, text, choices)


def _questions(table: Table, text: tuple[str, ...], choices: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    from distill.data.kinds.multiple_choice import choices_of

    for start in range(0, table.rows.num_rows, 1024):
        part = table.rows.slice(start, 1024)
        yield from zip(*(part[name].to_pylist() for name in text), choices_of(part, choices), strict=True)


def _of_file(table: Table, columns: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for batch in table.rows.select(list(columns)).to_batches(max_chunksize=1024):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _check_output(options: argparse.Namespace) -> None:
    if options.output is None:
        return
    output = Path(options.output)
    if output.is_dir():
        raise ConfigError(f"--output: got the folder {output}; must be a file; set --output {output}/predictions.jsonl")
    if options.file is not None and output.exists() and Path(options.file).exists() and output.samefile(options.file):
        raise ConfigError(f"--output: got {output}; must not be the file of --file; choose another")


@contextmanager
def _opened(options: argparse.Namespace) -> Iterator[Any]:
    """A function that writes rows to standard output, or to a file that appears when all rows are written."""
    from distill.checkpoint import writing_file

    named = options.output is not None and options.output.lower().endswith(".csv")
    lines = _csv if (options.format or ("csv" if named else "jsonl")) == "csv" else _jsonl
    try:
        if options.output is None:
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(encoding="utf-8")
            yield lines(sys.stdout)
            return
        with writing_file(Path(options.output)) as temporary:
            with temporary.open("w", encoding="utf-8", newline="") as file:
                yield lines(file)
    except BrokenPipeError:
        raise
    except OSError as error:
        place = options.output or "standard output"
        raise UserError(
            f"--output: got {place}; must be writable ({error.strerror}); free disk space, or choose another"
        ) from error


def _jsonl(file: TextIO) -> Any:
    def write(rows: list[dict[str, Any]]) -> None:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        file.flush()

    return write


def _csv(file: TextIO) -> Any:
    writer: csv.DictWriter[str] | None = None

    def write(rows: list[dict[str, Any]]) -> None:
        nonlocal writer
        flat = [dict(_flat(row)) for row in rows]
        if writer is None:
            writer = csv.DictWriter(file, list(flat[0]), lineterminator="\n")
            writer.writeheader()
        writer.writerows(flat)
        file.flush()

    return write


def _flat(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Cells of a CSV: an entry of a dictionary has its own column, and names in a list are separated by `|`."""
    for key, value in row.items():
        if isinstance(value, dict):
            yield from _flat({f"{key}.{name}": entry for name, entry in value.items()})
        elif isinstance(value, list):
            names = all(isinstance(entry, str) for entry in value)
            yield key, "|".join(value) if names else json.dumps(value, ensure_ascii=False)
        else:
            yield key, value


if __name__ == "__main__":
    sys.exit(main())
