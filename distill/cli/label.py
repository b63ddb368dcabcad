"""The command line of `distill.labelling`. torch is imported when a model is loaded that needs it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Any

from distill.cli.options import as_options
from distill.errors import listen
from distill.runtime import gpus, quoting
from distill.runtime.command_line import Parser, count, exit_code, say
from distill.runtime.storage.outputs import at_home

PROG = "python -m distill.label"
OPTIONS = (
    "teacher", "files", "out", "text", "text_pair", "choices", "label", "separator", "soft_label", "backend", "scheme",
    "device", "threads", "max_length", "tokens", "rows", "tries", "lease",
)  # fmt: skip
"""Settings in messages of distill.data and distill.labelling, which are options here."""


def main(arguments: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Exit code: 0 when all rows are labelled, 2 for an error that the user can correct and for rows that could not be
    labelled, 130 after Ctrl-C."""
    return exit_code(
        lambda: _run(_parser(prog).parse_intermixed_args(arguments)),
        shown=_shown,
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
    parser.add_argument(
        "--out", metavar="FOLDER", type=at_home, required=True, help="a new folder, or one to go on with"
    )
    parser.add_argument("--text", metavar="COLUMN", help="column of the texts; by default that of the task")
    parser.add_argument("--text-pair", metavar="COLUMN", help="column of the second text of each pair")
    parser.add_argument(
        "--choices", metavar="COLUMN", action="append", help="column of lists of choices; repeated, one for each choice"
    )
    parser.add_argument("--label", metavar="COLUMN", help="column of given labels, which is copied")
    parser.add_argument("--separator", help="between the values of a CSV")
    parser.add_argument("--soft-label", metavar="NAME", default="soft", help="new column of the soft labels (soft)")
    parser.add_argument("--backend", help="torch, onnxruntime, ...; by default that of the fastest artifact in float")
    parser.add_argument(
        "--scheme", help="fp32, bf16, ...; by default, on a GPU, bf16 or fp16, whichever it is fast in, else fp32"
    )
    parser.add_argument("--device", default="cpu", help="of torch: cpu, cuda or cuda:1")
    parser.add_argument("--threads", metavar="N", type=count, help="of the CPU; all cores by default")
    parser.add_argument("--max-length", metavar="N", type=count, help="tokens of a text; by default as in training")
    parser.add_argument("--tokens", metavar="N", type=count, default=16384, help="tokens in a batch (16384)")
    parser.add_argument("--rows", metavar="N", type=count, default=10_000, help="most rows of a unit (10000)")
    parser.add_argument("--tries", metavar="N", type=count, help="processes that try a unit before it is given up (3)")
    parser.add_argument("--lease", metavar="SECONDS", type=count, default=60, help="until a unit is taken over (60)")
    return parser


def _shown(message: str) -> str:
    """A message with options in place of settings, and the names of arguments without an option."""
    message = as_options(message, ["tasks", "label"], OPTIONS, repeated=True)
    return message.replace("--teacher", "TEACHER").replace("--files", "FILE")


def _run(given: argparse.Namespace) -> None:
    from rich.console import Console

    from distill import labelling
    from distill.labelling.plan import counted
    from distill.runtime.progress import Bar

    if find_spec("torch"):  # it is not needed where the teacher is an artifact of another runtime
        from distill.runtime.machine import silence

        silence()
    listen()  # SIGTERM ends a process as Ctrl-C does, and it releases its lease
    named: dict[str, Any] = vars(given)
    with ExitStack() as stack:
        if given.device == "cuda":  # the processes of a machine take different GPUs
            all_gpus = gpus.visible()
            own = stack.enter_context(gpus.one_of(all_gpus))
            given.device = given.device if own is None else f"cuda:{all_gpus.index(own)}"
        options = labelling.Options(
            **{name: value for name, value in named.items() if name not in ("teacher", "files", "out", "choices")},
            choices=tuple(given.choices or ()),
        )
        bars = list[Bar]()

        def progress(done: int, total: int, form: str) -> None:
            if not bars:
                bars.append(stack.enter_context(Bar(Console(stderr=True), "label", total, done)))
            else:
                bars[0].update(done, form)

        found = labelling.label(given.teacher, given.files, given.out, options, log=say, progress=progress)
    are = "is" if found.rows == 1 else "are"
    say(
        f"{found.folder}: {counted(found.rows, 'row')} in {counted(found.units, 'unit')} {are} labelled, "
        f"{found.made:,} of them by this process"
    )
    say(f"train with: {' '.join(quoting.setting(key, value) for key, value in found.settings.items())}")
    if found.unnamed:
        say("The teacher's outputs have no names: put the names of the labels, in that order, in tasks.labels.")
