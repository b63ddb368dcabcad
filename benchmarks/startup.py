"""Seconds until the help, the settings of a recipe, the first training step of the demo, and the first prediction.

    python -m benchmarks.startup --serve FOLDER --output benchmarks/results/startup.json

Each command runs in a process of its own, in turn. The demo starts with an empty cache, and is stopped at its first
step. With an exported folder, each of its artifacts is loaded and predicts once, and the sizes of the packages that
serving needs are added.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

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
    parser.add_argument("--serve", type=Path, metavar="FOLDER", help="an exported folder whose artifacts are started")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the measurements to FILE as JSON")
    arguments = parser.parse_args()
    from benchmarks.tables.speed import startup_table
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
    measured: dict[str, Any] = {"environment": hardware(cores()), "rows": rows}
    if arguments.serve is not None:
        measured |= {"serving": served(arguments.serve, arguments.repeats, cores()), "packages": packages()}
    console = Console()
    console.print(terminal.table(startup_table(measured), width=console.width))
    if arguments.output is not None:
        atomic.write_json(arguments.output, measured)


def served(folder: Path, repeats: int, threads: int) -> list[dict[str, Any]]:
    """Seconds from the start of a process to its first prediction, and MiB that are resident then, of each artifact."""
    from distill.deploy.export.record import read
    from distill.deploy.serve.cold_start import answered

    record, rows = read(folder), []
    if record is None:
        raise SystemExit(f"{folder}: got no exported folder; must be one; choose another")
    for entry in record.artifacts:
        found = [answered([str(folder), entry.backend, entry.scheme, "cpu", str(threads)]) for _ in range(repeats)]
        if problems := [each for each in found if isinstance(each, str)]:
            raise SystemExit(f"{folder}: {entry.name} does not start: {problems[0]}")
        starts = [each for each in found if not isinstance(each, str)]
        seconds = [milliseconds / 1000 for milliseconds, _ in starts]
        rows.append({"artifact": entry.name, "seconds": seconds, "mib": [mib for _, mib in starts]})
    return rows


def packages() -> dict[str, float]:
    """MiB of the installed files of each package that serving needs."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [re.split(r"[<>=]", line)[0] for line in project["optional-dependencies"]["serve"]]
    return {
        name: sum(file.size or 0 for file in importlib.metadata.files(name) or []) / 2**20 for name in sorted(names)
    }


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
