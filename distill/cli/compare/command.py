"""The command line of a comparison. torch is imported when the file is read."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from distill.config.backends import BACKENDS
from distill.errors import ConfigError, discreet, printable
from distill.runtime.command_line import Parser, count, exit_code
from distill.runtime.storage.outputs import at_home

PROG = "python -m distill.compare"


def main(arguments: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Exit code: 0, 2 for an error that the user can correct, 130 after Ctrl-C."""
    return exit_code(lambda: _run(_parser(prog).parse_args(arguments)), stopped="stopped; nothing was written")


def _parser(prog: str = PROG) -> Parser:
    text = "Compare two models on the rows of a file: agreement, scores, classes, lengths and latency."
    parser = Parser(prog, description=text)
    parser.add_argument("a", metavar="A", help="folder of a model, e.g. the teacher")
    parser.add_argument("b", metavar="B", help="folder of a model, e.g. an exported student")
    parser.add_argument("file", metavar="FILE", help="CSV, TSV, JSON Lines or parquet, with labels or without")
    parser.add_argument("--text", metavar="COLUMN", help="column of the text, or of the first text of a pair")
    parser.add_argument("--text-pair", metavar="COLUMN", help="column of the second text of a pair")
    parser.add_argument(
        "--choices", metavar="COLUMN", action="append", help="column of lists of choices; repeated, one for each choice"
    )
    parser.add_argument(
        "--label", metavar="COLUMN", action="append", help="column of the label; repeated, columns of 0 and 1"
    )
    parser.add_argument("--separator", help="between the values of a CSV")
    parser.add_argument("--output", metavar="FOLDER", type=at_home, help="default: outputs/compare/A-vs-B")
    parser.add_argument("--overwrite", action="store_true", help="replace what --output has of another comparison")
    parser.add_argument("--rows", metavar="N", type=count, default=10, help="rows to list where the models differ most")
    parser.add_argument("--batch-size", metavar="N", type=count, default=32, help="texts in a batch of predictions")
    parser.add_argument(
        "--windows",
        action="store_true",
        help="of embedders: read long texts in windows, whose vectors are averaged, in place of truncating them",
    )
    parser.add_argument(
        "--backend",
        metavar="BACKEND",
        nargs="+",
        choices=BACKENDS,
        help=f"one for both, or two, of A and of B: {', '.join(BACKENDS)}; default: the fastest that each folder has",
    )
    return parser


def _run(options: argparse.Namespace) -> None:
    backends = options.backend or [None]
    if len(backends) > 2:
        raise ConfigError(
            f"--backend: got {len(backends)} values; must be one, or two for A and B; leave out the others"
        )

    from rich.console import Console
    from rich.text import Text

    from distill import config
    from distill.cli.compare.comparison import compare
    from distill.cli.compare.page import blocks
    from distill.cli.compare.write import check, told_apart, write
    from distill.report.terminal import show_blocks
    from distill.runtime.machine import silence

    columns = {name: getattr(options, name) for name in ("text", "text_pair", "choices", "label", "separator")}
    asked = {"backend": options.backend} | ({"windows": True} if options.windows else {})
    own = told_apart(options.a, options.b, options.file, columns | asked)
    if options.output is not None:
        for model in (options.a, options.b):
            if Path(options.output).resolve().is_relative_to(Path(model).resolve()):
                raise ConfigError(
                    f"--output: got {options.output}, a folder of the model {model}; must be another, as its files "
                    "would be part of the model; leave it out, or choose another"
                )
        check(options.output, own, options.file, overwrite=options.overwrite)
    messages = Console(stderr=True)
    silence()
    comparison = compare(
        options.a,
        options.b,
        options.file,
        config.Task(**columns),
        top=options.rows,
        batch_size=options.batch_size,
        backends=(backends[0], backends[-1]),
        windows=options.windows,
        log=lambda line: messages.print(Text(printable(discreet(line)), style="dim"), soft_wrap=True),
    )
    shown_on = Console(width=None if sys.stdout.isatty() else 160)
    # First, so that nothing is lost where it cannot be written.
    show_blocks(blocks(comparison, whole=False), None, shown_on)
    show_blocks([], write(comparison, options.output, own, overwrite=options.overwrite), shown_on)
