"""Files of the running system, such as its environment, are no data, however they are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from distill.config import load_config
from distill.pipeline import validation
from distill.pipeline.validation.system import system_files

ENVIRON = "/proc/self/environ"


@pytest.mark.skipif(not Path(ENVIRON).exists(), reason="Linux only")
def test_a_file_of_the_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").symlink_to(ENVIRON)
    Path("more").mkdir()
    Path("more", "own.csv").write_text("text,label\na,b\n")
    Path("more", "theirs.csv").symlink_to(tmp_path / "rows.csv")
    for key, value in {
        "tasks.train": "rows.csv", "tasks.validation": "{a: rows.csv}", "tasks.test": "[more/own.csv,more/theirs.csv]",
        "tasks.development": "more/*.csv", "transfer.files": "file:///proc/1/environ",
    }.items():  # fmt: skip
        config = load_config(["recipe=task", "tasks=own", "tasks.train=more/own.csv", f"{key}={value}"])
        lines = [line for line in validation.settings(config, "task") if "which leads to /proc/" in line]
        assert [line.partition(": ")[0] for line in lines] == [key]
        assert lines[0].endswith("/environ; must be a file on a disk; name another")
    config = load_config(["recipe=distilbert", "corpus=text", "corpus.path=rows.csv"])
    assert [line for line in validation.settings(config, "distilbert") if line.startswith("corpus.path: ")]


@pytest.mark.skipif(not Path(ENVIRON).exists(), reason="Linux only")
@pytest.mark.parametrize(
    "spelled", [ENVIRON, "file://{}", "local://{}", "simplecache::file://{}", "local://{}/../link"]
)
def test_every_spelling_of_a_file_of_the_system_is_known(spelled: str, tmp_path: Path) -> None:
    place = ENVIRON
    if spelled.endswith("link"):
        (tmp_path / "link").symlink_to(ENVIRON)
        spelled, place = "local://{}", str(tmp_path / "link")
    assert len([*system_files("tasks.train", spelled.format(place))]) == 1


@pytest.mark.skipif(not Path(ENVIRON).exists(), reason="Linux only")
@pytest.mark.parametrize("place", ["qrels/train.tsv", "corpus.jsonl"])
def test_a_file_of_the_system_in_a_folder_of_rows_is_refused(place: str, tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    for file in ("corpus.jsonl", "queries.jsonl", "qrels/train.tsv", "qrels/test.tsv"):
        (tmp_path / file).write_text("{}\n")
    assert not [*system_files("tasks.train", str(tmp_path))]
    (tmp_path / place).unlink()
    (tmp_path / place).symlink_to(ENVIRON)
    (line,) = system_files("tasks.train", str(tmp_path))
    assert line.startswith(f"tasks.train: got {tmp_path}, which leads to /proc/")
