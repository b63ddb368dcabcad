"""Watches the process of a long sweep: its memory, open files, threads, and the temporary files that it leaves.

    python -m benchmarks.soak --minutes 120 --output benchmarks/results/soak.json

A sweep (`python -m distill -m`) makes small models one after the other in a single process, each with another seed,
until the time is over. Every ten seconds the operating system is asked for the memory, files and threads of that
process. If one of them grows with the number of finished jobs, it leaks.
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

import psutil
from rich.console import Console

from distill import checkpoint
from distill.environment import hardware

EVERY = 10.0
"""Seconds between two readings."""
JOB = (
    "recipe=distilbert", "limit=smoke", "limit.steps=4", "limit.repeats=1", "limit.documents=60", "tasks.names=[order]",
    "stages.evaluate.shapes=[[1,16]]", "threads=1", "cache.dir=cache",
)  # fmt: skip
"""Settings of a job: it trains a teacher and a student, exports both to ONNX and OpenVINO, and times them."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Watch the process of a long sweep of small jobs.")
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the readings to FILE as JSON")
    arguments = parser.parse_args()
    from benchmarks.results_table import soak_table
    from distill.report import terminal

    outcome = {"environment": hardware(1), "minutes": arguments.minutes, "rows": watched(arguments.minutes)}
    console = Console()
    console.print(terminal.table(soak_table(outcome), width=console.width))
    if arguments.output is not None:
        checkpoint.write_json(arguments.output, outcome)


def watched(minutes: float) -> list[dict[str, Any]]:
    """Readings of the process of a sweep that runs for `minutes`."""
    with tempfile.TemporaryDirectory() as folder:
        home, temporary = Path(folder) / "home", Path(folder) / "tmp"
        home.mkdir()
        temporary.mkdir()
        jobs = int(minutes * 6)  # hardly more than there is time for, because the settings of all are composed first
        words = [sys.executable, "-m", "distill", "-m", *JOB, f"seed=range(0,{jobs})"]
        environment = os.environ | {"TMPDIR": str(temporary), "PYTHONSAFEPATH": "1", "HF_HUB_OFFLINE": "1"}
        with (home / "log").open("w") as log:
            process = subprocess.Popen(words, cwd=home, env=environment, stdout=log, stderr=log)
            rows, began = [], time.monotonic()
            try:
                while time.monotonic() - began < 60 * minutes:
                    time.sleep(EVERY)
                    if process.poll() is not None:
                        break
                    rows.append({"seconds": time.monotonic() - began, **reading(process.pid, home, temporary)})
            finally:
                ended = process.poll()
                process.terminate()
                process.wait()
        if ended:
            raise RuntimeError(f"the sweep failed: {(home / 'log').read_text()[-2000:]}")
        return rows


def reading(process: int, home: Path, temporary: Path) -> dict[str, Any]:
    """Numbers of a process and its children, and of finished jobs and temporary files."""
    main = psutil.Process(process)
    with main.oneshot():
        numbers = {
            "memory_mib": main.memory_full_info().uss / 2**20,
            "files": main.num_fds(),
            "threads": main.num_threads(),
        }
    return {
        "jobs": sum(1 for _ in home.rglob("results.json")),
        **numbers,
        "processes": len(main.children(recursive=True)),
        "temporary": sum(1 for path in temporary.rglob("*") if path.is_file()),
        "shared_memory": sum(1 for _ in Path("/dev/shm").glob("*")),
    }


if __name__ == "__main__":
    main()
