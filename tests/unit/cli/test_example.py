"""The example's files are what the commands read, and the same for everybody."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest
import yaml

from distill.cli.example import command


def rows(file: Path) -> list[list[str]]:
    with file.open(encoding="utf-8", newline="") as opened:
        return [*csv.reader(opened)]


def test_no_text_is_in_both_files_and_every_queue_is_in_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([str(tmp_path)]) == 0
    tickets, new = (rows(tmp_path / name) for name in command.FILES)
    assert (len(tickets), len(new), tickets[0], new[0]) == (1601, 401, *[["text", "label"]] * 2)
    texts = [row[0].casefold() for row in tickets[1:] + new[1:]]
    assert len({*texts}) == 2000
    queues = yaml.safe_load((Path(command.__file__).parent / "tickets.yaml").read_text())["queues"]
    assert len(queues) == 8
    assert all({*Counter(row[1] for row in part[1:])} == {*queues} for part in (tickets, new))
    assert not any("{" in text or "  " in text for text in texts)
    shown = capsys.readouterr().out
    assert f"tasks.train={tmp_path}/tickets.csv tasks.test={tmp_path}/new.csv" in shown
    assert command.main([str(tmp_path)]) == 0, "its own files are written again"


@pytest.mark.parametrize("folder", ["/proc/nope", "/dev/full/x"])
def test_a_folder_that_cannot_be_written_is_one_line(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([folder]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"folder: got {folder}; must be a folder")


def test_files_of_the_users_are_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tickets.csv").write_text("mine")
    assert command.main([str(tmp_path)]) == 2
    assert "not written by this command" in capsys.readouterr().err
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"tickets.csv": "mine"}
