"""Watches long series of runs: their memory, open files, threads, and the temporary files that they leave.

    python -m benchmarks.soak --minutes 120 --output benchmarks/results/soak.json

Small models are made one after the other, each with another seed, until the time is over: by a sweep
(`python -m distill -m`), whose runs are processes of their own, and, side by side with it, by calls of `distill.run` in
a single process. Every ten seconds the operating system is asked for the memory, files and threads of their processes.
What grows with the number of finished runs leaks.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from distill import errors
from distill.runtime.storage import atomic
from distill.runtime.versions import hardware

EVERY = 10.0
"""Seconds between two readings."""
RUN = (
    "recipe=distilbert", "limit=smoke", "limit.steps=4", "limit.repeats=1", "limit.documents=60", "tasks.names=[order]",
    "stages.evaluate.shapes=[[1,16]]", "threads=1", "cache.dir=cache",
)  # fmt: skip
"""Settings of a run: it trains a teacher and a student, exports both to ONNX and OpenVINO, and times them."""
SERIES = {
    "sweep": ("-m", "distill", "-m"),
    "calls": ("-c", "import distill, sys\nfor seed in range(10**6): distill.run(*sys.argv[1:], f'seed={seed}')"),
}
"""Name of a series of runs -> what Python gets before the settings of its runs."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Watch long series of small runs.")
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the readings to FILE as JSON")
    arguments = parser.parse_args()
    errors.listen()  # so that the series end with it
    from benchmarks.tables.reliability import soak_table
    from distill.report import terminal

    outcome = {"environment": hardware(1), "minutes": arguments.minutes, "rows": watched(arguments.minutes)}
    console = Console()
    console.print(terminal.table(soak_table(outcome), width=console.width))
    if arguments.output is not None:
        atomic.write_json(arguments.output, outcome)


def watched(minutes: float) -> list[dict[str, Any]]:
    """Readings of all series, which run side by side for `minutes`."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        homes = {series: Path(folder) / series for series in SERIES}
        processes = {series: stack.enter_context(_started(series, homes[series], minutes)) for series in SERIES}
        rows, began = [], time.monotonic()
        while time.monotonic() - began < 60 * minutes:
            time.sleep(EVERY)
            for series, process in processes.items():
                if process.poll() is None:
                    seconds = time.monotonic() - began
                    rows.append({"series": series, "seconds": seconds, **reading(process.pid, homes[series])})
                elif process.returncode:
                    raise RuntimeError(f"{series} failed: {(homes[series] / 'log').read_text()[-2000:]}")
        return rows


@contextlib.contextmanager
def _started(series: str, home: Path, minutes: float) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a series, in the folder `home`, until the end of the block."""
    (home / "tmp").mkdir(parents=True)
    # Hardly more runs than there is time for, because a sweep composes the settings of all of them first.
    sweep = [f"seed=range(0,{int(minutes * 4)})"] if series == "sweep" else []
    words = [sys.executable, *SERIES[series], *RUN, *sweep]
    environment = os.environ | {"TMPDIR": str(home / "tmp"), "PYTHONSAFEPATH": "1", "HF_HUB_OFFLINE": "1"}
    with (home / "log").open("w") as log:
        process = subprocess.Popen(words, cwd=home, env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def reading(process: int, home: Path) -> dict[str, Any]:
    """Sums over a process and its children; and the numbers of finished runs and temporary files."""
    first = psutil.Process(process)
    numbers = {"memory_mib": 0.0, "files": 0, "threads": 0, "processes": 0}
    for each in [first, *first.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess), each.oneshot():
            numbers["memory_mib"] += each.memory_full_info().uss / 2**20
            numbers["files"] += each.num_fds()
            numbers["threads"] += each.num_threads()
            numbers["processes"] += 1
    return {
        "runs": sum(1 for _ in home.rglob("results.json")),
        **numbers,
        "temporary": sum(1 for path in (home / "tmp").rglob("*") if path.is_file()),
        "shared_memory": sum(1 for _ in Path("/dev/shm").glob("*")),
    }


if __name__ == "__main__":
    main()
