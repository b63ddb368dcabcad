"""The command line of labelling. torch is imported when a model is loaded that needs it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distill.cli.options import Parser, as_options, count, exit_code, say
from distill.errors import ConfigError, UserError, listen
from distill.runtime import quoting
from distill.runtime.storage import disk_errors

if TYPE_CHECKING:  # these take a second to import, and --help must not wait for them
    from distill.cli.label.plan import Columns, Plan, Unit
    from distill.cli.label.work import Work
    from distill.data.files import Table
    from distill.deploy.serve.model import Model

PROG = "python -m distill.label"
OPTIONS = ("text", "text_pair", "label", "separator")
"""Settings in messages of distill.data, which are options here."""
_TRIES = 3


def main(arguments: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Exit code: 0 when all rows are labelled, 2 for an error that the user can correct and for rows that could not be
    labelled, 130 after Ctrl-C.

    Args:
        arguments: the words after the command; those of `sys.argv` by default.
        prog: the command as the user typed it, for messages.
    """
    return exit_code(
        lambda: _reported(_parser(prog).parse_intermixed_args(arguments)),
        shown=lambda message: as_options(message, ["tasks"], OPTIONS),
        stopped="stopped; the same command goes on",
    )


def _parser(prog: str = PROG) -> Parser:
    parser = Parser(
        prog,
        description="Write a teacher's outputs for the rows of any number of files, as soft labels that a run reads "
        "(tasks.soft_label). Start the same command as often as you like, on one machine or on several that share the "
        "folder, to share the work; start it again to go on.",
    )
    parser.add_argument("teacher", metavar="TEACHER", help="an exported folder, or one that transformers loads")
    parser.add_argument("files", metavar="FILE", nargs="+", help="CSV, TSV, JSONL or parquet; a glob or a URL too")
    parser.add_argument("--out", metavar="FOLDER", type=Path, required=True, help="a new folder, or one to go on with")
    parser.add_argument("--text", metavar="COLUMN", help="column of the texts; by default that of the task")
    parser.add_argument("--text-pair", metavar="COLUMN", help="column of the second text of each pair")
    parser.add_argument("--label", metavar="COLUMN", help="column of given labels, which is copied")
    parser.add_argument("--separator", help="between the values of a CSV")
    parser.add_argument("--soft-label", metavar="NAME", default="soft", help="new column of the soft labels (soft)")
    parser.add_argument("--backend", help="torch, onnxruntime, ...; by default that of the fastest artifact in float")
    parser.add_argument("--scheme", help="fp32, bf16, ...; by default bf16 on a GPU that has it, else fp32")
    parser.add_argument("--device", default="cpu", help="of torch: cpu, cuda or cuda:1")
    parser.add_argument("--threads", metavar="N", type=count, help="of the CPU; all cores by default")
    parser.add_argument("--max-length", metavar="N", type=count, help="tokens of a text; by default as in training")
    parser.add_argument("--tokens", metavar="N", type=count, default=16384, help="tokens in a batch (16384)")
    parser.add_argument("--rows", metavar="N", type=count, default=10_000, help="most rows of a unit (10000)")
    parser.add_argument("--tries", metavar="N", type=count, help="processes that try a unit before it is given up (3)")
    parser.add_argument("--lease", metavar="SECONDS", type=count, default=60, help="until a unit is taken over (60)")
    return parser


def _reported(options: argparse.Namespace) -> None:
    """Label; an error of a disk is one line."""
    try:
        _run(options)
    except OSError as error:
        if (line := disk_errors.problem(error)) is None:
            raise
        raise UserError(line) from error


def _run(options: argparse.Namespace) -> None:
    from rich.console import Console

    from distill.cli.label import plan as plans
    from distill.cli.label.model import labeller
    from distill.cli.label.soft import unnamed
    from distill.cli.label.work import Work, finish, run
    from distill.deploy.export.record import located
    from distill.runtime.progress import Bar
    from distill.runtime.storage import cache

    if find_spec("torch"):  # it is not needed where the teacher is an artifact of another runtime
        from distill.runtime.machine import silence

        silence()
    listen()  # SIGTERM ends a process as Ctrl-C does, and it releases its lease
    folder = located(options.teacher)
    _check_out(options.out, folder)
    with cache.using():
        model, plan, known = _begun(options, folder)
        work = Work(options.out, plan, plans.stamp_of(known), options.lease)
        total = sum(unit.rows for unit in plan.units)
        at_first = total - sum(unit.rows for unit in work.open())
        done = at_first
        with Bar(Console(stderr=True), "label", total, at_first) as bar:

            def labelled(unit: Unit) -> None:
                nonlocal done
                done += unit.rows
                bar.update(done, f"rows, {plan.backend} {plan.scheme}")

            run(work, labeller(model, plan, options.tokens, options.separator, say), labelled, say)
        poison = finish(work)
    if poison:
        raise UserError(_failed(work, poison))
    made = f"{done - at_first:,} of them by this process"
    say(f"{options.out}: {total:,} rows in {len(plan.units):,} units are labelled, {made}")
    say(f"train with: {_settings(options.out, plan)}")
    if unnamed(plan.labels):
        say("The teacher's outputs have no names: put the names of the labels, in that order, in tasks.labels.")


def _begun(options: argparse.Namespace, folder: Path) -> tuple[Model, Plan, Plan]:
    """(teacher, what this command labels, the same as the folder of labels was begun)."""
    from distill.cli.label import plan as plans
    from distill.cli.label.model import loaded

    plans.forget()
    stored = plans.stored(options.out)
    model = loaded(folder, options, stored, say)
    plan = _plan(options, folder, model, stored)
    known = plans.begun(options.out, plan, say)
    if stored is None and known is not plan:  # another process was faster: what no option names is as it says
        model = loaded(folder, options, known, say)
        tries = options.tries or known.tries
        plan = replace(plan, backend=model.backend, scheme=model.scheme, tries=tries)
    plans.check(options.out, known, plan)
    return model, plan, known


def _failed(work: Work, poison: list[dict[str, Any]]) -> str:
    """The message on units that are not labelled, with what can be done with the same rows and the same teacher."""
    first, place = poison[0], work.folder / "poison.json"
    last = first["first_row"] + first["rows"] - 1
    again = "" if any(len(each["errors"]) < work.plan.tries for each in poison) else f", after you removed {work.tried}"
    return (
        f"{work.folder}: got {len(poison)} of {len(work.plan.units)} units that failed (the first is {first['file']}, "
        f"rows {first['first_row']} to {last}: {first['errors'][-1]}); must be labelled; see {place}, and run the same "
        f"command{again}, with a smaller --tokens or more memory if memory was full"
    )


def _check_out(out: Path, teacher: Path) -> None:
    if out.resolve().is_relative_to(teacher.resolve()):
        raise ConfigError(f"--out: got {out}, the folder of the teacher or one in it; must be another; choose one")


def _plan(options: argparse.Namespace, folder: Path, model: Model, stored: Plan | None) -> Plan:
    """What this command asks for. All rows are read, so that a wrong one is refused before any work."""
    from distill.cli.label import plan as plans
    from distill.data import files

    names = _outside(files.expand(options.files, "FILE"), options.out)
    columns = _columns(options, model, names)
    sources = []
    for name in names:
        table = plans.table(name, options.separator)
        say(*table.notes)
        _check(table, columns, name)
        sources.append(plans.source(name, columns, table, options.rows))
    return plans.Plan(
        plans.of_teacher(folder),
        model.backend,
        model.scheme,
        model.max_length,
        model.kind.name,
        model.labels,
        options.tries or (stored.tries if stored else _TRIES),
        columns,
        tuple(sources),
    )


def _outside(names: Sequence[str], out: Path) -> list[str]:
    """The files that are not in the folder of labels, which a glob may match."""
    found = [name for name in names if "://" in name or not Path(name).resolve().is_relative_to(out.resolve())]
    if not found:
        raise ConfigError(f"FILE: got only files in {out}, the folder of --out; must be other files; name them")
    if left := len(names) - len(found):
        say(f"{out}: {left:,} files in it are not labelled, as it is the folder of --out")
    return found


def _columns(options: argparse.Namespace, model: Model, names: Sequence[str]) -> Columns:
    """The columns that are read and written. Texts are in those of the options, those of the teacher's task, or the
    likely ones of the first file, and the given label in that of the options, or in the first one with a usual name."""
    from distill import config
    from distill.cli.label import plan as plans
    from distill.cli.texts import check_width
    from distill.data.columns import texts_of

    rows = plans.table(names[0], options.separator).rows
    settings = config.Task(text=options.text, text_pair=options.text_pair, label=options.label)
    text, _, guessed = texts_of(settings, rows, model.columns, (), model.kind.architecture, "tasks", names[0])
    check_width(text, model.columns, "this model")
    if guessed:
        say(f"{names[0]}: the text is from {' and '.join(text)}")
    columns = plans.Columns(tuple(text), _label(options, names, text), options.soft_label)
    if (twice := next((name for name in columns.names if columns.names.count(name) > 1), None)) is not None:
        raise ConfigError(
            f"--soft-label, --label: got {twice}, which stands for two columns; must be different names; name {twice} "
            "once"
        )
    return columns


def _label(options: argparse.Namespace, names: Sequence[str], text: Sequence[str]) -> str:
    """The column of given labels; a name for a column without any if no file has one."""
    from distill.cli.label import plan as plans
    from distill.data.columns import LABELS

    for name in names:
        columns = [column for column in plans.table(name, options.separator).rows.column_names if column not in text]
        if options.label in columns:
            return str(options.label)
        found = (column for wanted in LABELS for column in columns if column.lower() == wanted)
        if options.label is None and (usual := next(found, None)) is not None:
            say(f"{name}: the given label is from {usual}")
            return usual
    if options.label is not None:
        raise ConfigError(
            f"--label: got {options.label}; must be a column of a file, but not of the text; correct it, or leave it "
            "out for rows without given labels"
        )
    return "label"


def _check(table: Table, columns: Columns, file: str) -> None:
    """Raise an error unless a file has the text columns, and a text in each row that a run can use."""
    from distill.data.labelled import usable_rows
    from distill.data.task_types.task_type import check_texts

    names = table.rows.column_names
    if missing := [name for name in columns.text if name not in names]:
        raise ConfigError(
            f"--text: got {missing[0]}; must be a column of {file}, which has {', '.join(names)}; correct it"
        )
    if columns.label not in names:
        say(f"{file}: the given label is null in each row, as there is no column {columns.label}")
    check_texts(table.rows, columns.text, file)
    usable_rows(table, columns.text)


def _settings(out: Path, plan: Plan) -> str:
    """The settings of a run that learns from the labels, quoted for a shell."""
    from distill.cli.label.soft import unnamed

    columns = plan.columns
    settings: dict[str, Any] = {
        "tasks.train": f"{out}/*.parquet",
        "tasks.text": columns.text[0],
        **({"tasks.text_pair": columns.text[1]} if len(columns.text) > 1 else {}),
        "tasks.label": columns.label,
        "tasks.soft_label": columns.soft,
        "tasks.kind": plan.kind,
        **({"tasks.labels": list(plan.labels)} if unnamed(plan.labels) else {}),
    }
    return " ".join(quoting.setting(key, value) for key, value in settings.items())
