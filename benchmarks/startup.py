"""Seconds of the commands that train nothing: the help, and the settings of a recipe.

    python -m benchmarks.startup --output benchmarks/results/startup.json

Each command runs in a process of its own, in turn.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

from distill import checkpoint

COMMANDS = {"help": ["--help"], "settings": ["recipe=distilbert", "--cfg", "job"]}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time of the commands that train nothing.")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each command; the median is reported")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the measurements to FILE as JSON")
    arguments = parser.parse_args()
    from benchmarks.results_table import startup_table
    from distill.environment import hardware
    from distill.machine import cores
    from distill.report import terminal

    seconds: dict[str, list[float]] = {until: [] for until in COMMANDS}
    for _ in range(arguments.repeats):
        for until, words in COMMANDS.items():
            seconds[until].append(timed(words))
    rows = [
        {"until": until, "command": " ".join(COMMANDS[until]), "seconds": found} for until, found in seconds.items()
    ]
    measured = {"environment": hardware(cores()), "rows": rows}
    console = Console()
    console.print(terminal.table(startup_table(measured), width=console.width))
    if arguments.output is not None:
        checkpoint.write_json(arguments.output, measured)


def timed(words: list[str]) -> float:
    """Seconds that `python -m distill` takes with these arguments."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "distill", *words], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
