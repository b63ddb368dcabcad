"""`python -m distill.predict FOLDER [TEXT ...]`: predictions of a model folder for texts, or for the rows of a file."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from distill.cli.options import as_options
from distill.errors import ConfigError, DataError, UserError, printable_lines, reworded
from distill.runtime import streams
from distill.runtime.cells import csv_line, json_line
from distill.runtime.command_line import Parser, count, exit_code, say

if TYPE_CHECKING:  # these take a second to import, and --help must not wait for them
    from distill.cli.texts import Source
    from distill.data.task_types import TaskType
    from distill.deploy.export.record import Record

PROG = "python -m distill.predict"
FORMS = ("jsonl", "csv")
OPTIONS = ("text", "text_pair", "choices", "separator", "file")
"""Settings in messages of distill.data, which are options here."""
OTHERS = (".json", ".tsv", ".parquet", ".xlsx", ".xls", ".ods", ".gz", ".arrow", ".feather")
"""Endings of files that this command does not write."""
_NUMBER = re.compile(r"^texts, number (\d+):")

Write = Callable[[Sequence[Sequence[Any]], Sequence[Mapping[str, Any]]], None]
"""Writes the values of the source's columns and the predictions of some rows."""


def _parser(prog: str = PROG) -> Parser:
    parser = Parser(prog, description=(__doc__ or "").partition(": ")[2])
    parser.add_argument("folder", metavar="FOLDER", help="an exported folder, or one that transformers loads")
    parser.add_argument("texts", metavar="TEXT", nargs="*", help="without texts and --file: lines of standard input")
    parser.add_argument("--file", help="CSV, TSV, JSONL or parquet; a glob or a URL too")
    parser.add_argument("--text", metavar="COLUMN", help="column of the texts; by default that of the task")
    parser.add_argument("--text-pair", metavar="COLUMN", help="column of the second text of each pair")
    parser.add_argument(
        "--choices", metavar="COLUMN[,COLUMN]", help="of multiple choice: a column of lists, or one for each choice"
    )
    parser.add_argument("--separator", help="between the values of a CSV")
    parser.add_argument("--output", metavar="FILE", help="a new file; by default standard output")
    parser.add_argument("--overwrite", action="store_true", help="replace the file of --output, if there is one")
    parser.add_argument("--format", metavar="FORMAT", type=_form, help="jsonl or csv; by default that of --output")
    parser.add_argument("--backend", help="torch, onnxruntime, ...; by default that of the fastest artifact")
    parser.add_argument("--scheme", help="fp32, int8, ...; by default that of the fastest artifact")
    parser.add_argument(
        "--load",
        metavar="LOAD",
        help="how texts come: batch, or single for one at a time; the fastest artifact for that answers",
    )
    parser.add_argument(
        "--windows",
        action="store_true",
        help="of an embedder: read long texts in windows, whose vectors are averaged, in place of truncating them",
    )
    parser.add_argument(
        "--detect",
        metavar="LABEL",
        action="append",
        help="predict LABEL by its own threshold, whatever its score; may be repeated for multi_label",
    )
    parser.add_argument("--batch-size", metavar="N", type=count, default=32, help="texts in a batch (32)")
    return parser


def _form(value: str) -> str:
    if value not in FORMS:
        raise argparse.ArgumentTypeError(f"got {value}; must be {' or '.join(FORMS)}; correct it")
    return value


def main(arguments: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Exit code: 0, 2 for an error that the user can correct, 130 for Ctrl-C."""
    return exit_code(
        lambda: _predict(_parser(prog).parse_intermixed_args(arguments)),
        shown=lambda message: as_options(message, ["tasks"], OPTIONS),
    )


def _predict(options: argparse.Namespace) -> None:
    from distill.cli.texts import source as source_of
    from distill.deploy.export.record import Heads, located, read, read_any

    folder = located(options.folder)
    stored = read_any(folder)
    # Heads of one encoder read the same texts.
    record = read(folder / stored.heads[0]) if isinstance(stored, Heads) else stored
    output, form = _output(options, folder)
    source = source_of(options, record, _kind(folder, record))  # before torch, so that a wrong file is refused at once
    say(*source.notes)

    from distill.data.encode import batches
    from distill.deploy import serve
    from distill.runtime.progress import Bar

    if find_spec("torch"):  # it is not needed to serve a model in another runtime
        from distill.runtime.machine import silence

        silence()
    asked = {name: getattr(options, name) for name in ("backend", "scheme", "load", "windows")}
    with reworded(lambda line: re.sub("^windows(?=:)", "--windows", line)):
        model = serve.load(folder, **asked, say=say)
    say(*_unprompted(record, model))
    done = 0
    with (
        _opened(output, form, source, not options.overwrite) as write,
        Bar(_console(output, source), "predict", source.total or 0) as bar,
    ):
        for rows in batches(source.rows):
            predictions = _predicted(model, [row.asked for row in rows], options, source, done)
            write([row.shown for row in rows], predictions)
            done += len(rows)
            bar.update(done, f"texts, {model.backend} {model.scheme}")


def _predicted(model: Any, texts: Any, options: argparse.Namespace, source: Source, done: int) -> list[dict[str, Any]]:
    """The predictions; an error about a text names its row."""

    def with_row(line: str) -> str:
        return _NUMBER.sub(lambda found: f"{source.where(done + int(found[1]) - 1)}:", line)

    with reworded(with_row, DataError):
        predictions: list[dict[str, Any]] = model.predict(texts, options.batch_size, options.detect)
    return predictions


def _unprompted(record: Record | None, model: Any) -> list[str]:
    """A line where an embedder was trained to read texts after prompts, of which it puts none before every text."""
    if record is None or not any(record.prompts) or getattr(model, "prompt", None):
        return []
    first, second = map(repr, record.prompts)
    return [
        f"no prompt is put before the texts: the model was trained to read queries, or first texts, after {first}, and "
        f"documents, or second texts, after {second}; write the one that fits before each text"
    ]


def _kind(folder: Path, record: Record | None) -> TaskType:
    """The kind of a model folder. For a folder without a record, its head decides."""
    from distill.data.task_types import TASK_TYPES, kind_of_model
    from distill.models.families.head import stored_head

    if record is not None:
        return record.kind
    head = stored_head(folder)
    if head is None:
        return TASK_TYPES["classification"]  # refused when it is loaded
    return kind_of_model(head.problem, head.outputs, head.architecture)


def _console(output: Path | None, source: Source) -> Any:
    """A console for the progress bar; None without a bar: results on the same terminal would break it up."""
    if not find_spec("rich"):  # as in a service
        return None
    from rich.console import Console

    console = Console(stderr=True)
    shown = console.is_terminal and source.total and (output is not None or not sys.stdout.isatty())
    return console if shown else None


def _output(options: argparse.Namespace, folder: Path) -> tuple[Path | None, str]:
    """The file that is written, None for standard output, and its form."""
    from distill.runtime.storage import outputs

    output = None
    if options.output is not None:
        inputs = [folder, *([options.file] if options.file is not None else [])]
        output = outputs.checked(options.output, "--output", inputs=inputs, overwrite=options.overwrite)
    if output is None and (sys.stdout is None or "stdout" in streams.closed):
        raise ConfigError("standard output: got a closed one; must be open, or a file be named; set --output FILE")
    suffix = "" if output is None else output.suffix.lower()
    if options.format is None and suffix in OTHERS:
        raise ConfigError(f"--output: got {output}; must end with .jsonl or .csv; rename it, or set --format csv")
    return output, options.format or ("csv" if suffix == ".csv" else "jsonl")


@contextmanager
def _opened(output: Path | None, form: str, source: Source, new: bool) -> Iterator[Write]:
    """A function that writes rows to standard output, or to a file that appears when all rows are written, and replaces
    none if it is `new`."""
    from distill.runtime.storage.atomic import writing_file

    lines = _csv if form == "csv" else _jsonl
    if output is None:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding="utf-8")
        yield lines(sys.stdout, source)
        return
    ours = True
    try:
        with writing_file(output, new=new) as temporary:
            with temporary.open("w", encoding="utf-8", newline="") as file:
                write = lines(file, source)

                def written(shown: Sequence[Sequence[Any]], predictions: Sequence[Mapping[str, Any]]) -> None:
                    nonlocal ours
                    ours = True
                    write(shown, predictions)
                    ours = False

                ours = False  # errors of the model, or of reading rows
                yield written
                ours = True
    except OSError as error:
        if not ours:
            raise
        raise UserError(
            f"--output: got {output}; must be writable ({error.strerror or error}); free disk space, or choose another"
        ) from error


def _jsonl(file: TextIO, source: Source) -> Write:
    names: dict[str, str] = {}

    def write(shown: Sequence[Sequence[Any]], predictions: Sequence[Mapping[str, Any]]) -> None:
        names.update(names or _said(source, predictions[0]))
        for values, prediction in zip(shown, predictions, strict=True):
            row = dict(zip(source.columns, values, strict=True))
            file.write(json_line(row | {names[key]: value for key, value in prediction.items()}))
        file.flush()

    return write


def _csv(file: TextIO, source: Source) -> Write:
    names: dict[str, str] = {}
    header: list[str] = []
    # A terminal would act on control characters in a text, which a file keeps.
    line = csv_line if not file.isatty() else lambda values: printable_lines(csv_line(values))

    def write(shown: Sequence[Sequence[Any]], predictions: Sequence[Mapping[str, Any]]) -> None:
        if not header:
            names.update(_said(source, predictions[0]))
            header.extend(flat({names[key]: value for key, value in predictions[0].items()}))
            file.write(line([*source.columns, *header]))
        for values, prediction in zip(shown, predictions, strict=True):
            cells = flat({names[key]: value for key, value in prediction.items()})
            file.write(line([*values, *(cells[name] for name in header)]))
        file.flush()

    return write


def _said(source: Source, prediction: Mapping[str, Any]) -> dict[str, str]:
    """The names of the prediction's keys in the output. A message states names that are not the usual ones."""
    names = renamed(prediction, source.columns)
    say(*(f"the input has a column {key}: the prediction is in {name}" for key, name in names.items() if key != name))
    return names


def renamed(prediction: Mapping[str, Any], columns: Sequence[str]) -> dict[str, str]:
    """Key of a prediction -> its name in the output: the key itself, `predicted_KEY` where a column of the input has
    that name, and `predicted_KEY_2` and so on where it has that too."""
    taken = set(columns)
    names: dict[str, str] = {}
    for key, value in prediction.items():
        number, name = 1, key
        while not taken.isdisjoint({name, *flat({name: value})}):
            name = f"predicted_{key}" if number == 1 else f"predicted_{key}_{number}"
            number += 1
        taken |= {name, *flat({name: value})}
        names[key] = name
    return names


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Cells of a CSV: an entry of a dictionary has its own column, and names in a list are separated by `|`.

    Where a name itself contains that mark or begins as a list in JSON does, the list is written as JSON.
    """
    cells: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            cells |= flat({f"{key}.{name}": entry for name, entry in value.items()})
        elif isinstance(value, list):
            names = all(isinstance(entry, str) and "|" not in entry and not entry.startswith("[") for entry in value)
            cells[key] = "|".join(value) if names else json.dumps(value, ensure_ascii=False)
        else:
            cells[key] = value
    return cells
