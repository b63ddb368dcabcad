"""Seconds until the help, the settings of a recipe, and the first training step of the demo.

    python -m benchmarks.startup --output benchmarks/results/startup.json

Each command runs in a process of its own, in turn. The demo starts with an empty cache, and is stopped at its first
step.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from distill.runtime.storage import atomic

STEP = "first training step, with an empty cache"
COMMANDS = {
    "help": ["--help"],
    "settings": ["recipe=distilbert", "--cfg", "job"],
    STEP: ["recipe=distilbert"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time until a command does what it is for.")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each command; the median is reported")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the measurements to FILE as JSON")
    arguments = parser.parse_args()
    from benchmarks.results_table import startup_table
    from distill.report import terminal
    from distill.runtime.machine import cores
    from distill.runtime.versions import hardware

    seconds: dict[str, list[float]] = {until: [] for until in COMMANDS}
    for _ in range(arguments.repeats):
        for until, words in COMMANDS.items():
            seconds[until].append(until_training(words) if until == STEP else timed(words))
    rows = [
        {"until": until, "command": " ".join(COMMANDS[until]), "seconds": found} for until, found in seconds.items()
    ]
    measured = {"environment": hardware(cores()), "rows": rows}
    console = Console()
    console.print(terminal.table(startup_table(measured), width=console.width))
    if arguments.output is not None:
        atomic.write_json(arguments.output, measured)


def timed(words: list[str]) -> float:
    """Seconds that `python -m distill` takes with these arguments."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "distill", *words], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - began


def until_training(words: list[str]) -> float:
    """Seconds until `python -m distill` prints the learning rate with which it starts to train."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"XDG_CACHE_HOME": f"{folder}/cache", "PYTHONUNBUFFERED": "1"}
        command, began = [sys.executable, "-m", "distill", *words, f"output={folder}/run"], time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as running:
            assert running.stdout is not None
            for line in running.stdout:
                if "learning rate" in line:
                    seconds = time.monotonic() - began
                    running.kill()
                    return seconds
    raise SystemExit(f"{' '.join(command)}: got no training; must start one; run it by itself")


if __name__ == "__main__":
    main()
