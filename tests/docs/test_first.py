"""What README and docs/first.md tell to type, in its order, on a model and a file, at the size of a smoke test."""

from __future__ import annotations

import csv
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests import tiny
from tests.forked import PYTHON

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = "outputs/tickets/export/4x/tickets"
"""The exported folder that the pages take as an example. A run names its own."""
QUEUES = ("billing", "fraud", "other")
SMALL = {
    "recipe=quantize": ["limit=smoke", "limit.repeats=1"],
    # A smoke run scores nothing, and so makes a student for each target.
    "recipe=auto": ["limit=smoke", "limit.repeats=1", "target.speedup=[4,12]"],
}
"""Recipe -> settings with which its command takes seconds."""
BRIEFLY = """
import runpy, sys
from distill.inference import latency

latency.LEAST_MS = latency.SMOKE_MS
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
"""A script that is `python -m`, but for the time for which models are timed."""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with a fine-tuned model and files of tickets."""
    names = {"id2label": dict(enumerate(QUEUES)), "label2id": {name: n for n, name in enumerate(QUEUES)}}
    tiny.save(tmp_path / "my-bert", "bert", "SequenceClassification", length=160, num_labels=3, **names)
    for name, first, end in (("tickets", 0, 96), ("new", 100, 150), ("newer", 200, 250)):
        with (tmp_path / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            rows = ((f"{tiny.SENTENCES[i % 8]} on day {i}", QUEUES[i % 8 % 3]) for i in range(first, end))
            csv.writer(file).writerows([("text", "label"), *rows])
    return tmp_path


def run(words: list[str], folder: Path) -> str:
    done = subprocess.run(
        [PYTHON, *words], capture_output=True, text=True, cwd=folder, env=os.environ | {"HOME": f"{folder}"}
    )
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def commands(page: str) -> list[str]:
    """What a page tells to type on the model and the files."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^python (-m distill.*my-bert.*|-m distill.predict.*)$", text, re.MULTILINE)


@pytest.mark.slow
def test_what_the_first_pages_tell_to_type_works_in_its_order(work: Path) -> None:
    more = [line for line in commands("docs/first.md") if "recipe=auto" not in line]
    typed = list(dict.fromkeys([*commands("README.md"), *more]))
    assert len(typed) == 6
    exported = EXAMPLE
    for line in typed:
        words = [word.replace(EXAMPLE, exported) for word in shlex.split(line)]
        recipe = next((word for word in words if word.startswith("recipe=")), None)
        printed = run(["-c", BRIEFLY, *words[1:], *SMALL.get(recipe or "", [])], work)
        if recipe is not None:
            ended = printed[printed.index("\nShip ") :] if "\nShip " in printed else printed
            (command,) = re.findall(r"^python (-m distill\.predict .*)$", ended, re.MULTILINE)[:1]
            exported = os.path.relpath(work / shlex.split(command)[2], work)
            assert "label" in run(shlex.split(command), work)  # as it is printed
            code = re.search(r"^import distill\n(?:.*\n)*?model\.predict.*$", ended, re.MULTILINE)
            assert code is not None
            run(["-c", code[0]], work)
