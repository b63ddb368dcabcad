"""Time and memory that it takes to encode corpora of several sizes.

    python -m benchmarks.corpus --output benchmarks/results/corpus.json

Each corpus is a text file of random words, which a run of recipe=distilbert encodes, without a cache, before it trains
the student for one step.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from distill import checkpoint

SIZES = [10, 40, 160]
"""MiB of text."""
WORDS_PER_DOCUMENT = 300

RUN = """
import json, resource, sys, time
from distill import run
from distill.data import sequences

encode, seconds = sequences.encode_corpus, []


def timed(*arguments, **settings):
    began = time.monotonic()
    result = encode(*arguments, **settings)
    seconds.append(time.monotonic() - began)
    return result


sequences.encode_corpus = timed
run(*sys.argv[1:])
print(json.dumps({"seconds": sum(seconds), "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory of encoding a corpus, by its size.")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="MIB", help="sizes of the text files")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the measurements to FILE as JSON")
    arguments = parser.parse_args()
    from benchmarks.results_table import corpus_table
    from distill.environment import hardware
    from distill.machine import cores
    from distill.report import terminal

    measured = {"environment": hardware(cores()), "rows": [benchmark(size) for size in arguments.sizes]}
    console = Console()
    console.print(terminal.table(corpus_table(measured), width=console.width))
    if arguments.output is not None:
        checkpoint.write_json(arguments.output, measured)


def benchmark(mib: int) -> dict[str, Any]:
    """Encode a corpus of this size in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file, output = Path(folder) / "corpus.txt", Path(folder) / "run"
        with file.open("w", encoding="utf-8") as to:
            to.writelines(documents(mib * 2**20))
        settings = [
            *("recipe=distilbert", "corpus=text", f"corpus.path={file}", "corpus.validation=0", "cache.max_gib=0"),
            *("pipeline=[adapt,pretrain]", "limit.steps=1", f"output={output}"),
        ]
        done = subprocess.run(
            [sys.executable, "-c", RUN, *settings],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
        )
        if done.returncode:
            raise SystemExit(done.stderr[-2000:])
        found = json.loads(done.stdout.splitlines()[-1])
        stored = sum(path.stat().st_size for path in output.rglob("*") if path.is_file() and "corpus" in path.parts)
        return {"mib": mib, "stored_mib": stored / 2**20, **found}


def documents(size: int) -> Iterator[str]:
    """Documents of random words that are as frequent as Zipf's law has them, one a line, of `size` bytes together."""
    random, letters = np.random.default_rng(0), "etaoinshrdlu"
    words = np.array(["".join(random.choice([*letters], random.integers(2, 9))) for _ in range(5000)])
    weights = 1 / np.arange(1, len(words) + 1)
    written = 0
    while written < size:
        line = " ".join(random.choice(words, WORDS_PER_DOCUMENT, p=weights / weights.sum())) + "\n"
        written += len(line)
        yield line


if __name__ == "__main__":
    main()
