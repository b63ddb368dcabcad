"""`python -m distill.report outputs/`: one page on all runs below a folder.

For the folder of a single run, the reports of that run are written again from its results.json. With --choose, --csv or
--json, no page is written: the variants of the runs are chosen from, or listed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from distill.errors import ConfigError, printable, printable_lines, reason
from distill.report import read_one, read_runs, write_overview, write_pages
from distill.report.choose import Ask, choice, near_chance, parsed
from distill.report.export import write_csv, write_json_rows
from distill.report.variants import Run, groups, variants
from distill.runtime import streams
from distill.runtime.command_line import Parser, exit_code
from distill.runtime.storage.outputs import checked

PROG = "python -m distill.report"


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    made = Parser(prog=prog, description=(__doc__ or "").split("\n")[0])
    made.add_argument(
        "folder", metavar="FOLDER", type=Path, help="a run folder, or one with runs below it, e.g. outputs/"
    )
    made.add_argument(
        "--choose",
        metavar="CONDITION",
        nargs="+",
        help="retained=97 or above_chance=97 (at least, in percent), ms=5, mib=20 (at most), load=single (one text at "
        "a time), and the goal: speedup=max (the default), retained=max, above_chance=max or size=min",
    )
    made.add_argument("--csv", metavar="FILE", help="every variant of every run, one a line; - is standard output")
    made.add_argument("--json", metavar="FILE", help="the same as a list of records")
    made.add_argument("--overwrite", action="store_true", help="replace files that exist, whoever wrote them")
    return made


def main(arguments: Sequence[str] | None = None, prog: str = PROG) -> int:
    """Exit code: 0, 2 for an error that the user can correct, 130 after Ctrl-C."""
    return exit_code(lambda: _run(parser(prog).parse_args(arguments)))


def _run(given: argparse.Namespace) -> None:
    try:
        if given.choose or given.csv is not None or given.json is not None:
            _listed(given)
            return
        paths = _written(given.folder, given.overwrite)
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # The schema of a stranger's results admits numbers that no run measures.
        raise ConfigError(
            f"{given.folder}: got results that cannot be shown ({reason(error)}); must be as runs wrote them; run "
            "their recipes again"
        ) from error
    for name, path in paths.items():
        print(printable(f"{name}: {path}"))


def _written(folder: Path, overwrite: bool) -> dict[str, Path]:
    if (folder / "results.json").is_file():
        return write_pages(read_one(folder / "results.json"), folder, overwrite=overwrite)
    return write_overview(folder, overwrite=overwrite)


def _listed(given: argparse.Namespace) -> None:
    ask = None if given.choose is None else parsed(given.choose)
    writers = {"--csv": (given.csv, write_csv), "--json": (given.json, write_json_rows)}
    read = [path for pattern in ("results.json", "disagreements.json") for path in given.folder.rglob(pattern)]
    files = [
        (checked(file, option, inputs=read, overwrite=given.overwrite), write)
        for option, (file, write) in writers.items()
        if file is not None
    ]
    places = ["-" if path is None else str(path.resolve()) for path, _ in files]
    if len({*places}) < len(places):
        raise ConfigError(f"--json: got {given.json}; must be another place than that of --csv; set --json FILE")
    if ask and "-" in places:
        raise ConfigError("--choose: got it with a file on standard output; must be alone there; name a file instead")
    runs = read_runs(given.folder)
    for path, write in files:
        write(runs, path)
    if ask:
        print(printable_lines("\n\n".join(_choices(runs, ask))))


def _choices(runs: list[Run], ask: Ask) -> list[str]:
    """The choice of each group of comparable runs, as text."""
    every, texts = variants(runs), []
    named = groups(runs)
    for number, group in enumerate(named):
        found = choice(runs, [variant for variant in every if variant.group == number], group, ask)
        load = found["loading"] or {}
        parts = [group.title + ":"] if len(named) > 1 else []
        parts += [*found["sentences"], *near_chance([runs[place].results for place in group.runs])]
        parts += [text for key in ("command", "code", "note") if (text := load.get(key))]
        texts.append("\n".join(parts))
    return texts


if __name__ == "__main__":
    sys.exit(streams.printed(main))
