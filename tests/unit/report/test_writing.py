"""Where reports are written: never over a user's own files."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from distill.report.__main__ import main
from distill.runtime.storage import atomic, run_folder

FILES = ("report.md", "report.html", "frontier.svg")


@pytest.fixture
def project(tmp_path: Path, results: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a project, which is the current one, with a run in `outputs/one`."""
    atomic.write_json(tmp_path / "outputs" / "one" / "results.json", results)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.quick(1)
@pytest.mark.parametrize(("name", "folder"), list(zip(FILES, [".", "outputs", "outputs/one"], strict=True)))
def test_a_file_of_the_user_is_kept(name: str, folder: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = project / folder / name
    mine.write_text("a year of work")
    assert main([folder]) == 2
    error = capsys.readouterr().err
    assert str(Path(folder, name)) in error
    assert error.count("\n") == 1
    assert mine.read_text() == "a year of work"
    assert not [other for other in FILES if other != name and (project / folder / other).exists()]
    assert main([folder, "--overwrite"]) == 0
    assert "a year of work" not in mine.read_text()
    assert main([folder]) == 0


def test_a_report_replaces_its_own_files_until_somebody_changes_them(project: Path, results: dict[str, Any]) -> None:
    assert main(["outputs"]) == 0
    before = (project / "outputs" / "report.md").read_text()
    atomic.write_json(project / "outputs" / "two" / "results.json", results | {"seeds": [7]})
    assert main(["outputs"]) == 0
    assert (project / "outputs" / "report.md").read_text() != before
    (project / "outputs" / "report.md").write_text("my own words")
    assert main(["outputs"]) == 2
    assert (project / "outputs" / "report.md").read_text() == "my own words"


def test_the_reports_of_a_run_are_replaced_in_its_folder(results: dict[str, Any], tmp_path: Path) -> None:
    run_folder.claim(tmp_path / "run")
    atomic.write_json(tmp_path / "run" / "results.json", results)
    atomic.write_text(tmp_path / "run" / "report.md", "of a run that was stopped")
    assert main([str(tmp_path / "run")]) == 0
    assert "of a run" not in (tmp_path / "run" / "report.md").read_text()
    assert not (tmp_path / "run" / ".distill-written").exists()


@pytest.mark.parametrize("option", ["--csv", "--json"])
def test_lists_are_written_to_new_files_or_standard_output(
    option: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["outputs", option, "-"]) == 0
    printed = capsys.readouterr().out
    assert main(["outputs", option, "forms"]) == 0
    assert (project / "forms").read_text() == printed
    assert json.loads(printed) if option == "--json" else printed.startswith("run,")
    (project / "forms").write_text("mine")
    (project / "link").symlink_to("forms")
    for given in (["forms"], ["link", "--overwrite"], ["outputs/one/results.json", "--overwrite"], ["outputs"], [""]):
        capsys.readouterr()
        assert main(["outputs", option, *given]) == 2
        assert capsys.readouterr().err.startswith(f"{option}: got ")
    assert (project / "forms").read_text() == "mine"
    assert main(["outputs", option, "forms", "--overwrite"]) == 0
    assert (project / "forms").read_text() == printed


def test_the_name_of_a_folder_that_cannot_be_written_acts_on_no_terminal(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(folder: Path, overwrite: bool) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(folder / "report.md"))

    monkeypatch.setattr("distill.report.__main__._written", refused)
    assert main(["theirs\x1b]0;owned\x07"]) == 2
    assert capsys.readouterr().err.startswith(r"theirs\x1b]0;owned\x07/report.md: got Read-only file system; must be ")
