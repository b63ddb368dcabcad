"""Committed results are listed with the rules that they were made under, and made again with their own commands."""

from __future__ import annotations

import json
import runpy
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import remake

complete = runpy.run_path(str(Path(__file__).parents[1] / "unit/report/conftest.py"))["complete"]
COMMAND = (
    "python -m distill recipe=prune teacher.name=my-bert tasks.train=sentiment.csv 'target.speedup=[2,4]' output=run"
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, command in (("small", "python -m distill recipe=distilbert output=x"), ("own-sentiment", COMMAND)):
        file = tmp_path / "docs/results" / name / "results.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(complete() | {"command": command}))
    return tmp_path


def test_committed_runs_are_listed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert remake.main([], root) == 0
    listed = capsys.readouterr().out
    assert "own-sentiment: current rules, distill" in listed
    assert COMMAND in listed
    assert remake.main([]) == 0


def test_a_run_that_is_not_committed_is_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert remake.main(["smal"], root) == 2
    assert capsys.readouterr().err == "RUNS: got smal; must be of own-sentiment, small\n"


def test_a_run_is_made_again_by_its_command(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[str, list[str]]] = []

    def run(folder: Path, arguments: Sequence[str]) -> int:
        called.append((folder.relative_to(root).as_posix(), list(arguments)))
        outputs = [word.removeprefix("output=") for word in arguments if word.startswith("output=")]
        if "own_csv.py" in arguments[0]:
            for name in ("sentiment.csv", "sentiment_test.csv"):
                (folder / name).write_text("text,label\n")
        for output in outputs:
            made = folder / output / ("finetune_teacher/sentiment" if output == "sentiment_teacher" else "")
            made.mkdir(parents=True)
            (made / "results.json").write_text(json.dumps({"made": output}))
        return 0

    monkeypatch.setattr(remake, "run", run)
    monkeypatch.setattr(remake, "GLUE", "docs")  # a folder that exists
    assert remake.main(["small", "own-sentiment"], root) == 0
    own = "outputs/own"
    assert [folder for folder, _ in called[:1] + called[2:]] == [".", own, own]
    assert called[1][0].startswith(f"{own}/")  # the files move when all are made
    assert sorted(path.name for path in (root / own).glob("*.csv")) == ["sentiment.csv", "sentiment_test.csv"]
    assert called[0][1] == ["-m", "distill", "recipe=distilbert", "output=outputs/again/small"]
    assert "tasks.train=sentiment.csv" in called[2][1]
    assert "pipeline=[finetune_teacher]" in called[2][1]
    assert called[3][1][-2:] == ["target.speedup=[2,4]", "output=run"]
    assert (root / own / "my-bert" / "results.json").is_file()
    for name, output in (("small", "outputs/again/small"), ("own-sentiment", "run")):
        assert json.loads((root / "docs/results" / name / "results.json").read_text()) == {"made": output}


def test_a_failed_run_replaces_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = root / "docs/results/small/results.json"
    before = file.read_bytes()
    monkeypatch.setattr(remake, "run", lambda folder, arguments: 3)
    assert remake.main(["small"], root) == 3
    assert file.read_bytes() == before
