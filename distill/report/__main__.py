"""`python -m distill.report outputs/`: one page on all runs below a folder.

For the folder of a single run, the reports of that run are written again from its results.json.
"""

from __future__ import annotations

import sys
from pathlib import Path

from distill.errors import UserError
from distill.report import read_one, write_overview, write_pages

USAGE = "usage: python -m distill.report FOLDER    (e.g. outputs/; writes FOLDER/report.html and FOLDER/report.md)"


def main(arguments: list[str]) -> int:
    """Exit code: 0, or 2 for an error that the user can correct."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        help_asked = arguments in (["-h"], ["--help"])
        print(USAGE, file=sys.stdout if help_asked else sys.stderr)
        return 0 if help_asked else 2
    folder = Path(arguments[0])
    try:
        if (folder / "results.json").is_file():
            paths = write_pages(read_one(folder / "results.json"), folder)
        else:
            paths = write_overview(folder)
    except UserError as error:
        print("\n".join(error.messages), file=sys.stderr)
        return 2
    for name, path in paths.items():
        print(f"{name}: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
