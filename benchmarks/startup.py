"""Seconds from a command until its first output: the help, the settings of a recipe, and the first training step.

    python -m benchmarks.startup --output benchmarks/results/startup.json

Each command runs in a process of its own, in turn. The first training step is that of recipe=distilbert, the main
command of README, once with an empty cache and once with what that run left in it. Its time includes that until the
step is shown: lines of progress are at least two seconds apart.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from distill import checkpoint

FIRST_STEP = ": step "
"""What the line of a training step has, and no earlier line."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Time until a command's first output.")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each command; the median is reported")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the measurements to FILE as JSON")
    arguments = parser.parse_args()
    from benchmarks.results_table import startup_table
    from distill.environment import hardware
    from distill.machine import cores
    from distill.report import terminal

    measured = {"environment": hardware(cores()), "rows": benchmark(arguments.repeats)}
    console = Console()
    console.print(terminal.table(startup_table(measured), width=console.width))
    if arguments.output is not None:
        checkpoint.write_json(arguments.output, measured)


def benchmark(repeats: int) -> list[dict[str, Any]]:
    """A row for each command: what is waited for, and the seconds of every run."""
    rows = [
        {"until": "help", "command": "--help", "seconds": [_until("", "--help") for _ in range(repeats)]},
        {
            "until": "settings",
            "command": "recipe=distilbert --cfg job",
            "seconds": [_until("", "recipe=distilbert", "--cfg", "job") for _ in range(repeats)],
        },
    ]
    seconds: dict[str, list[float]] = {"first step": [], "first step, with a filled cache": []}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            for until, found in seconds.items():
                settings = [f"output={folder}/{len(until)}", f"cache.dir={folder}/cache"]
                found.append(_until(FIRST_STEP, "recipe=distilbert", *settings))
    rows += [{"until": until, "command": "recipe=distilbert", "seconds": found} for until, found in seconds.items()]
    return rows


def _until(text: str, *arguments: str) -> float:
    """Seconds until a line with this text, after which the process is stopped; without a text, until it ends."""
    began = time.monotonic()
    command = [sys.executable, "-m", "distill", *arguments]
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        shown = any(text in line for line in process.stdout) if text else bool(process.stdout.read())
        seconds = time.monotonic() - began
        process.terminate()
        process.stdout.read()
    if not shown:
        raise SystemExit(f"{' '.join(command)}: printed nothing that was waited for")
    return seconds


if __name__ == "__main__":
    main()
