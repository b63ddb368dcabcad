"""Files to which lines are only added, whatever killed processes left in them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from distill.errors import UserError
from distill.runtime.storage import append_only, disk_errors


def test_what_is_in_the_file_never_changes_wherever_a_process_was_killed(tmp_path: Path) -> None:
    """After any cut of the file, and with any bytes at its end, lines are added after all that is there."""
    rng, whole = random.Random(0), [{"number": n, "text": "ä\n" * n} for n in range(3)]
    append_only.append(tmp_path / "whole", whole)
    content = (tmp_path / "whole").read_bytes()
    assert [json.loads(line) for line in content.splitlines()] == whole
    for cut in range(len(content) + 1):
        file, left = tmp_path / "cut", content[:cut] + rng.choice((b"", b"\xff", b"{", b"7\n", b"null"))
        file.write_bytes(left)
        kept = append_only.read(file)
        for more in ([{"more": 1}], [{"more": 2}, {"more": 3}]):
            append_only.append(file, more)
        assert file.read_bytes().startswith(left)
        # A line is whole without its end too, if all of its object was written.
        assert kept == whole[: len(kept)]
        assert append_only.read(file) == [*kept, {"more": 1}, {"more": 2}, {"more": 3}]


def test_a_missing_file_has_no_lines(tmp_path: Path) -> None:
    assert append_only.read(tmp_path / "none" / "file") == []
    append_only.append(tmp_path / "none" / "file", [{"a": 1}])
    assert append_only.read(tmp_path / "none" / "file") == [{"a": 1}]


SCRIPT = """
import sys
from pathlib import Path
from distill.runtime.storage import append_only
for number in range(200):
    append_only.append(Path(sys.argv[1]), [{"from": sys.argv[2], "number": number, "long": "x" * number}] * 2)
"""


def test_lines_of_several_processes_do_not_mix(tmp_path: Path) -> None:
    file, names = tmp_path / "file", ["a", "b", "c"]
    every = [subprocess.Popen([sys.executable, "-c", SCRIPT, str(file), name]) for name in names]
    assert [process.wait(timeout=60) for process in every] == [0, 0, 0]
    lines = append_only.read(file)
    assert len(file.read_bytes().splitlines()) == len(lines) == 3 * 400
    for name in names:
        assert [line["number"] for line in lines if line["from"] == name] == sorted([*range(200)] * 2)


def test_nothing_is_written_through_a_link_or_into_a_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    (tmp_path / "folder").mkdir()
    for name, what in (("link", "a symbolic link"), ("folder", "a folder")):
        with pytest.raises(UserError, match=f"{name}: got {what}; must be a file"):
            append_only.append(tmp_path / name, [{"a": 1}])
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_full_disk_is_named_and_leaves_a_line_that_is_skipped(
    tmp_path: Path, small_disk: Callable[[int], AbstractContextManager[None]]
) -> None:
    file = tmp_path / "file"
    append_only.append(file, [{"number": 0}])
    before = file.read_bytes()
    with small_disk(len(before) + 4), pytest.raises(OSError, match="File too large") as raised:
        append_only.append(file, [{"number": 1}])
    assert str(disk_errors.problem(raised.value)).startswith(f"{file}: got File too large; must be ")
    assert file.read_bytes() == before + b'{"nu'
    append_only.append(file, [{"number": 2}])
    assert append_only.read(file) == [{"number": 0}, {"number": 2}]
