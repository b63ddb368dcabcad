"""Seconds that are on disk while they pass."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distill.pipeline import clock

WAITS = """
import sys
from pathlib import Path
from distill.pipeline import clock

with clock.kept(Path(sys.argv[1]), "2x", lambda: 60.0):
    print("begun", flush=True)
    sys.stdin.read()
"""


def test_the_seconds_are_written_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "TICK", 0.01)
    file, seconds = tmp_path / "clock.json", itertools.count(1)
    with clock.kept(file, "2x", lambda: float(next(seconds))):
        first, end = clock.found(file)["2x"], time.monotonic() + 10
        while clock.found(file)["2x"] < first + 2:
            assert time.monotonic() < end, "nothing more was written"
            time.sleep(0.01)
    last = clock.found(file)
    time.sleep(0.05)
    assert clock.found(file) == last, "written after the end of the block"


def test_a_killed_process_leaves_its_seconds(tmp_path: Path) -> None:
    file = tmp_path / "clock.json"
    command = [sys.executable, "-c", WAITS, str(file)]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.kill()
        process.wait()
    assert clock.found(file) == {"2x": 60.0}


@pytest.mark.parametrize("content", ["", "[1]", '{"2x": "a"}', '{"2x": -1}', '{"2x": 1e999}', '{"2x": NaN}', "\x00"])
def test_a_damaged_file_has_no_seconds(content: str, tmp_path: Path) -> None:
    file = tmp_path / "clock.json"
    assert clock.found(file) == {}
    file.write_text(content)
    assert clock.found(file) == {}


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "clock.json")
    assert clock.found(tmp_path / "clock.json") == {}


def test_a_file_that_cannot_be_written_does_not_end_the_block(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with clock.kept(tmp_path / "file" / "clock.json", "2x", lambda: 1.0):
        pass
