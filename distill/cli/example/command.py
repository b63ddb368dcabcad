"""The command line that writes an example: made-up tickets to a bank, and which of its queues each belongs to.

python -m distill example
"""

from __future__ import annotations

import argparse
import csv
import io
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from distill.errors import ConfigError, printable
from distill.runtime import quoting
from distill.runtime.command_line import Parser, exit_code
from distill.runtime.storage import outputs

PROG = "python -m distill.example"
FILES = {"tickets.csv": 1600, "new.csv": 400}
"""Name of a file -> its number of rows. No text is in both."""


def tickets(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """(text, queue) of `count` different made-up tickets."""
    parts = yaml.safe_load((Path(__file__).parent / "tickets.yaml").read_text(encoding="utf-8"))
    drawn, found = random.Random(seed), dict[str, str]()
    while len(found) < count:
        queue = drawn.choice([*parts["queues"]])
        opening, request, closing = (
            drawn.choice(each) for each in (parts["openings"], parts["queues"][queue], parts["closings"])
        )
        request = _filled(request, parts["slots"], drawn)
        ends = "?" if request.startswith(("how", "who", "what", "when", "why", "where", "can", "is ")) else "."
        sentence = f"{request}{ends}" if opening.endswith(",") else f"{request[0].upper()}{request[1:]}{ends}"
        ticket = (_filled(opening, parts["slots"], drawn), sentence, _filled(closing, parts["slots"], drawn))
        found.setdefault(" ".join(filter(None, ticket)), queue)
    return [*found.items()]


def _filled(text: str, slots: Mapping[str, Sequence[str]], drawn: random.Random) -> str:
    return text.format(**{name: drawn.choice(values) for name, values in slots.items()})


def written() -> dict[str, str]:
    """Name of each file -> its content."""
    rows, contents = tickets(sum(FILES.values())), dict[str, str]()
    for name, count in FILES.items():
        file = io.StringIO(newline="")
        csv.writer(file, lineterminator="\n").writerows([("text", "label"), *rows[:count]])
        contents[name], rows = file.getvalue(), rows[count:]
    return contents


def _parser(prog: str = PROG) -> argparse.ArgumentParser:
    parser = Parser(prog=prog, description="Write made-up tickets to a bank as CSV, to try the commands on.")
    parser.add_argument("folder", nargs="?", default=".", help="where the files are written; by default here")
    parser.add_argument("--overwrite", action="store_true", help="replace files of these names")
    return parser


def main(arguments: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Exit code: 0, 2 for files that exist already or cannot be written, 130 after Ctrl-C."""

    def command() -> None:
        asked: Any = _parser(prog).parse_args(arguments)
        folder, files = Path(asked.folder), {name: text.encode() for name, text in written().items()}
        try:
            outputs.write_all(folder, files, "folder", overwrite=asked.overwrite)
        except OSError as error:
            why = error.strerror or error
            raise ConfigError(
                f"folder: got {folder}; must be a folder that can be written ({why}); name another"
            ) from error
        lines = [
            f"{folder / name}: {count:,} made-up rows, with the columns text and label" for name, count in FILES.items()
        ]
        train, test = (f"{folder / name}" for name in FILES)
        given = f"{quoting.setting('tasks.train', train)} {quoting.setting('tasks.test', test)}"
        lines += [f"python -m distill recipe=auto {given} budget.minutes=15 output=outputs/tickets"]
        sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))

    return exit_code(command)
