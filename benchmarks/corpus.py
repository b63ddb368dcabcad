"""Time and memory that it takes to encode corpora of several sizes.

    python -m benchmarks.corpus --output benchmarks/results/corpus.json

Each corpus is a text file of random words, which is read and encoded as by a run, in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from distill.runtime.storage import atomic

SIZES = [10, 40, 160]
"""MiB of text."""
WORDS_PER_DOCUMENT = 300

RUN = """
import json, sys, time
from pathlib import Path
from distill.config import Corpus, Limit, Teacher
from distill.data.corpus import load_corpus
from distill.data.sequences import encode_corpus
from distill.inference import memory
from distill.models.teacher import load_tokenizer
from distill.models.teacher.folders import resolve

tokenizer, began = load_tokenizer(resolve(Teacher(kind="embedded"))), time.monotonic()
with memory.peak("cpu") as peak:
    texts = load_corpus(Corpus(kind="text", path=sys.argv[1]), Limit(), 0)
    encode_corpus(Path(sys.argv[2]), texts, tokenizer, 128)
    print(json.dumps({"seconds": time.monotonic() - began, "peak_mib": peak()}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory of encoding a corpus, by its size.")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="MIB", help="sizes of the text files")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the measurements to FILE as JSON")
    arguments = parser.parse_args()
    from benchmarks.tables.speed import corpus_table
    from distill.report import terminal
    from distill.runtime.machine import cores
    from distill.runtime.versions import hardware

    measured = {"environment": hardware(cores()), "rows": [benchmark(size) for size in arguments.sizes]}
    console = Console()
    console.print(terminal.table(corpus_table(measured), width=console.width))
    if arguments.output is not None:
        atomic.write_json(arguments.output, measured)


def benchmark(mib: int) -> dict[str, Any]:
    """Encode a corpus of this size in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "corpus.txt", Path(folder) / "encoded"
        out.mkdir()
        with file.open("w", encoding="utf-8") as to:
            to.writelines(documents(mib * 2**20))
        command = [sys.executable, "-c", RUN, str(file), str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr[-2000:])
        stored = sum(path.stat().st_size for path in out.iterdir())
        return {"mib": mib, "stored_mib": stored / 2**20, **json.loads(done.stdout.splitlines()[-1])}


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
