"""Standard output and error that cannot be written: a run goes on, and a command that prints says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PRINT = """
import sys
from distill.runtime import streams
def main():
    from rich.console import Console
    console = Console()
    for number in range(3000):
        console.print(f"line {number}", highlight=False)
        print("ü", number)
    open("done", "w").write("x" * 10)
    print(sys.stdin.read(), sys.stdout.isatty(), flush=True)
    return 0
"""
STEADY = f"{PRINT}\nstreams.steady()\nsys.exit(main())"
PRINTED = f"{PRINT}\nsys.exit(streams.printed(main))"
FIRST = f"{PRINT}\nsys.exit(streams.printed(main, first=True))"
SAID = "{}: got {}; what follows is not shown, and the command goes on\n"
UNWRITABLE = "standard output: got No space left on device; must be writable; write to another disk\n"


def bash(command: str, script: str, folder: Path) -> tuple[int, str, str]:
    """Exit code of `$RUN` in a command, and what it printed on standard output and error."""
    (folder / "script.py").write_text(script, encoding="utf-8")
    env = os.environ | {"RUN": f"{sys.executable} script.py", "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        cwd=folder,
        env=env,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("command", "script", "code", "error", "finished"),
    [
        ("$RUN | head -1 >/dev/null", STEADY, 0, SAID.format("standard output", "Broken pipe"), True),
        ("$RUN >/dev/full", STEADY, 0, SAID.format("standard output", "No space left on device"), True),
        ("$RUN 2>&1 | head -1 >/dev/null", STEADY, 0, "", True),
        ("$RUN >&- 2>&- <&-", STEADY, 0, "", True),
        ("$RUN >&-", STEADY, 0, "", True),
        ("$RUN | head -1 >/dev/null", PRINTED, 0, "", True),
        ("$RUN >/dev/full", PRINTED, 2, UNWRITABLE, True),
        ("$RUN >&-", PRINTED, 0, "", True),
        ("$RUN >/dev/full", FIRST, 2, UNWRITABLE, False),
    ],
)
def test_what_cannot_be_printed(
    command: str, script: str, code: int, error: str, finished: bool, tmp_path: Path
) -> None:
    assert bash(f"{command} </dev/null" if "<&-" not in command else command, script, tmp_path)[::2] == (code, error)
    # Nothing that was printed got into the file, whose descriptor could be that of a closed stream.
    done = tmp_path / "done"
    assert done.is_file() == finished
    assert not finished or done.read_text() == "x" * 10


def test_what_a_stream_cannot_encode_is_escaped(tmp_path: Path) -> None:
    script = "import sys\nfrom distill.runtime import streams\nstreams.steady()\nprint('ü \\udce9 я')"
    command = "PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 LC_ALL=C PYTHONIOENCODING=ascii $RUN"
    assert bash(command, script, tmp_path) == (0, "\\xfc \\udce9 \\u044f\n", "")
