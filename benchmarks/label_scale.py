"""Labels many rows by several processes of which some are killed, and measures their memory and their speed.

    python -m benchmarks.label_scale --rows 200000 2000000 --output benchmarks/results/label_scale.json

The rows are made from a seed, half of them in parquet and half in JSON Lines, and the teacher is a random model of one
narrow layer, so that most of the work is that of reading, tokenizing and writing. Each size is labelled into a new
folder, with a new cache. At evenly spaced moments a process is ended by SIGKILL, and another one started. At the end
all labels are read, in order: each row must be there once, with its own text and with probabilities. The memory of a
process is the peak of its resident memory, as the kernel counts it; if it is flat, it is the same at all sizes. With
`--group 10000000` each parquet file is one row group, of which a process may have all texts in memory.
"""

from __future__ import annotations

import argparse
import os
import random
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distill.runtime.storage import atomic
from distill.runtime.versions import hardware

ROOT = Path(__file__).resolve().parents[1]
TINY = runpy.run_path(str(ROOT / "tests" / "tiny.py"))
WORDS = sorted({word for sentence in TINY["SENTENCES"] for word in sentence.split()})
BLOCK, FILE = 10_000, 500_000
"""Rows that are made at once, and of a file."""
LEASE = 2
"""Seconds of a lease, so that the unit of a killed process is soon taken over."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Label many rows by processes of which some are killed.")
    parser.add_argument("--rows", type=int, nargs="+", default=[200_000, 2_000_000], metavar="N", help="sizes")
    parser.add_argument("--unit", type=int, default=BLOCK, metavar="N", help="most rows of a unit")
    parser.add_argument("--group", type=int, default=50_000, metavar="N", help="most rows of a row group")
    parser.add_argument("--processes", type=int, default=2, metavar="N")
    parser.add_argument("--kills", type=int, default=6, metavar="N", help="processes that are killed at each size")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--output", type=Path, metavar="FILE")
    options = parser.parse_args()
    results = []
    for rows in options.rows:
        with tempfile.TemporaryDirectory(prefix="distill-label-") as folder:
            results.append(labelled(Path(folder), rows, options))
        print(results[-1], flush=True)
    if options.output is not None:
        atomic.write_json(options.output, {"hardware": hardware(1), "sizes": results})


def block(seed: int, number: int, rows: int) -> list[str]:
    """The texts of a block: 5 to 20 words, and the number of the row."""
    draw = np.random.default_rng([seed, number])
    sizes = draw.integers(5, 21, rows)
    words = iter(draw.choice(WORDS, int(sizes.sum())).tolist())
    start = number * BLOCK
    return [" ".join([*(next(words) for _ in range(size)), str(start + n)]) for n, size in enumerate(sizes.tolist())]


def texts(seed: int, first: int, end: int) -> Iterator[list[str]]:
    """The texts of the rows from `first`, which begins a block, to `end`, in blocks."""
    for start in range(first, end, BLOCK):
        yield block(seed, start // BLOCK, min(BLOCK, end - start))


def write(folder: Path, rows: int, seed: int, group: int) -> list[Path]:
    """The files, in the order of their rows: parquet and JSON Lines in turn."""
    files = []
    size = min(FILE, -(-rows // 2 // BLOCK) * BLOCK)
    for number, first in enumerate(range(0, rows, size)):
        file = folder / f"{number:04d}.{('parquet', 'jsonl')[number % 2]}"
        parts = texts(seed, first, min(first + size, rows))
        if file.suffix == ".jsonl":
            with file.open("w") as to:
                for part in parts:
                    to.writelines(f'{{"text": "{text}", "label": "a"}}\n' for text in part)
        else:
            every = [text for part in parts for text in part]
            table = pa.table({"text": every, "label": ["a"] * len(every)})
            pq.write_table(table, file, row_group_size=group)
        files.append(file)
    return files


class Workers:
    """Processes of one labelling, and the peaks of their memory."""

    def __init__(self, words: list[str], environment: dict[str, str], errors: Path) -> None:
        self._words, self._environment, self.errors = words, environment, errors
        self.running: list[subprocess.Popen[bytes]] = []
        self.peaks: dict[int, float] = {}
        self.codes: list[int] = []

    def start(self) -> None:
        command = [sys.executable, "-m", "distill.label", *self._words]
        nothing: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        with self.errors.open("ab") as errors:
            self.running.append(subprocess.Popen(command, cwd=ROOT, env=self._environment, stderr=errors, **nothing))

    def kill(self, draw: random.Random) -> None:
        process = draw.choice(self.running)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.running.remove(process)

    def look(self) -> None:
        """Measure the memory of all that run, and note the exit codes of those that ended."""
        for process in [*self.running]:
            try:
                lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            except OSError:
                lines = []
            peak = next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)
            self.peaks[process.pid] = max(peak, self.peaks.get(process.pid, 0.0))
            if (code := process.poll()) is not None:
                self.codes.append(code)
                self.running.remove(process)


def labelled(folder: Path, rows: int, options: argparse.Namespace) -> dict[str, Any]:
    """Label rows into a folder; their number, times, memory and kills."""
    teacher = TINY["save"](folder / "teacher", "bert", "SequenceClassification", num_labels=3, num_hidden_layers=1)
    files, out = write(folder, rows, options.seed, options.group), folder / "labels"
    words = [str(teacher), *map(str, files), "--out", str(out), "--text", "text", "--label", "label", "--threads", "1"]
    words += ["--rows", str(options.unit), "--lease", str(LEASE)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPATH": str(ROOT)}
    workers = Workers(words, environment, folder / "errors.txt")
    draw, killed, began, units = random.Random(options.seed), 0, time.monotonic(), -(-rows // options.unit)
    for _ in range(options.processes):
        workers.start()
    first = 0.0
    while workers.running:
        workers.look()
        done = len(list(out.glob("*.parquet"))) if out.is_dir() else 0
        first = first or (time.monotonic() if done else 0.0)
        if workers.running and killed < options.kills and done >= (killed + 1) * units / (options.kills + 1):
            workers.kill(draw)
            workers.start()
            killed += 1
        time.sleep(0.05)
    ended = time.monotonic()
    assert workers.codes == [0] * options.processes, f"{workers.codes} {workers.errors.read_text()[-2000:]}"
    if killed < options.kills:
        print(f"{killed} of {options.kills} processes were killed, as the others had ended", file=sys.stderr)
    check(out, rows, options.seed)
    cache = sum(file.stat().st_size for file in (folder / "cache").rglob("*") if file.is_file())
    return {
        "rows": rows,
        "rows_of_a_group": options.group,
        "units": len(list(out.glob("*.parquet"))),
        "processes": options.processes,
        "killed": killed,
        "seconds": round(ended - began, 1),
        "seconds_before_the_first_unit": round(first - began, 1),
        "rows_per_second": round(rows / (ended - first)),
        "peak_mib_of_a_process": round(max(workers.peaks.values()), 1),
        "mib_of_files": round(sum(file.stat().st_size for file in files) / 2**20, 1),
        "mib_of_cache": round(cache / 2**20, 1),
    }


def check(out: Path, rows: int, seed: int) -> None:
    """Every row is there once, in order, with its text and three probabilities that sum to 1."""
    wanted = (text for part in texts(seed, 0, rows) for text in part)
    count = 0
    for file in sorted(out.glob("*.parquet")):
        table = pq.read_table(file)
        for text in table["text"].to_pylist():
            assert text == next(wanted), (file, text)
        soft = table["soft"].combine_chunks()
        assert soft.null_count == 0
        assert np.allclose(np.asarray(soft.flatten()).reshape(-1, 3).sum(axis=1), 1), file
        count += table.num_rows
    assert count == rows
    assert not (out / "poison.json").exists()


if __name__ == "__main__":
    main()
