"""`python -m distill.report outputs/`: one page on all runs below a folder.

For the folder of a single run, the reports of that run are written again from its results.json. With --choose, --csv or
--json, no page is written: the forms of the runs are chosen from, or listed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from distill import disk
from distill.errors import UserError, printable, printable_lines, reason
from distill.report import read_one, read_runs, write_overview, write_pages
from distill.report.choose import Ask, parsed, verdict
from distill.report.export import write_csv, write_json_rows
from distill.report.forms import Run, forms, groups


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m distill.report", description=(__doc__ or "").split("\n")[0])
    made.add_argument(
        "folder", metavar="FOLDER", type=Path, help="a run folder, or one with runs below it, e.g. outputs/"
    )
    made.add_argument(
        "--choose",
        metavar="CONDITION",
        nargs="+",
        help="retained=97 or above_chance=97 (at least, in percent), ms=5, mib=20 (at most), and the goal: speedup=max "
        "(the default), retained=max, above_chance=max or size=min",
    )
    made.add_argument("--csv", metavar="FILE", type=Path, help="every form of every run, one a line")
    made.add_argument("--json", metavar="FILE", type=Path, help="the same as a list of records")
    return made


def main(arguments: list[str]) -> int:
    """Exit code: 0, or 2 for an error that the user can correct."""
    try:
        given = parser().parse_args(arguments)
    except SystemExit as stopped:
        return int(stopped.code or 0)
    try:
        if given.choose or given.csv or given.json:
            _listed(given.folder, given.choose, given.csv, given.json)
            return 0
        paths = _written(given.folder)
    except UserError as error:
        print("\n".join(error.messages), file=sys.stderr)
        return 2
    except OSError as error:
        if (line := disk.problem(error)) is None:
            raise
        print(line, file=sys.stderr)
        return 2
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # The schema of a stranger's results admits numbers that no run measures.
        shown = f"{given.folder}: got results that cannot be shown ({reason(error)}); must be as runs wrote them; "
        print(printable(f"{shown}run their recipes again"), file=sys.stderr)
        return 2
    for name, path in paths.items():
        print(printable(f"{name}: {path}"))
    return 0


def _written(folder: Path) -> dict[str, Path]:
    if (folder / "results.json").is_file():
        return write_pages(read_one(folder / "results.json"), folder)
    return write_overview(folder)


def _listed(folder: Path, words: list[str] | None, csv: Path | None, json: Path | None) -> None:
    ask = None if words is None else parsed(words)
    runs = read_runs(folder)
    if csv:
        write_csv(runs, csv)
    if json:
        write_json_rows(runs, json)
    if ask:
        print(printable_lines("\n\n".join(_choices(runs, ask))))


def _choices(runs: list[Run], ask: Ask) -> list[str]:
    """The choice of each group of comparable runs, as text."""
    every, texts = forms(runs), []
    named = groups(runs)
    for number, group in enumerate(named):
        found = verdict(runs, [form for form in every if form.group == number], group, ask)
        load = found["loading"] or {}
        parts = [group.title + ":"] if len(named) > 1 else []
        parts += found["sentences"]
        parts += [text for key in ("command", "code", "note") if (text := load.get(key))]
        texts.append("\n".join(parts))
    return texts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
