"""One process at a time, on file systems with and without locks."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from distill.errors import ConfigError
from distill.runtime.storage import locks, run_folder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has locks of another kind")
WITHOUT = """
import errno, fcntl, os, sys
from pathlib import Path

def missing(*arguments):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

fcntl.flock = missing
from distill.runtime.storage import locks

with locks.held(Path("lock"), lambda file: sys.exit(f"taken: {file}")):
    os.kill(os.getpid(), 9) if sys.argv[1:] else print("got it")
"""


@pytest.fixture
def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", missing)


@pytest.mark.usefixtures("without_locks")
def test_without_locks_a_run_is_alone_too_and_one_that_was_killed_is_not_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def other(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", WITHOUT, *words], capture_output=True, text=True)

    with locks.held(Path("lock"), lambda _: pytest.fail("it is free")):
        assert other().stderr.strip() == "taken: lock.taken"
    assert other().stdout == "got it\n"
    assert other("killed").returncode == -9
    assert (tmp_path / "lock.taken").is_file()
    assert other().stdout == "got it\n"


@pytest.mark.usefixtures("without_locks")
def test_the_file_of_another_machine_is_named(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run_folder.claim(run)
    with run_folder.locked(run):
        taken = run / f"{run_folder.LOCK}{locks.TAKEN}"
        content = taken.read_text()
    taken.write_text(content.replace(content.splitlines()[1], "another-machine"))
    with pytest.raises(ConfigError, match=rf"one run at a time.*; remove {taken} if a run on another"):
        with run_folder.locked(run):
            raise AssertionError


def test_other_errors_are_raised(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError), locks.held(tmp_path, lambda _: None):
        raise AssertionError
