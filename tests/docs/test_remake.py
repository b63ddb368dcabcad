"""Committed results are listed with the rules that they were made under, and made again with their own commands."""

from __future__ import annotations

import json
import runpy
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest
from hydra.errors import HydraException

from benchmarks import remake
from benchmarks.tables.runs import ROOT, read
from distill.config import load_config
from distill.errors import ConfigError
from distill.pipeline import validation

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
    assert " minutes on " in listed
    assert COMMAND in listed
    assert "no longer exist" not in listed


@pytest.mark.slow
def test_every_committed_command_is_composed_today_or_its_lost_settings_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert remake.main([]) == 0
    listed = capsys.readouterr().out
    runs, folder = read(ROOT), ROOT / "docs/results"
    assert {*runs} == {path.parent.relative_to(folder).as_posix() for path in folder.rglob("results.json")}
    for name, results in runs.items():
        given = remake.settings(results.command)
        assert f"{name}: " in listed
        try:
            composed = load_config(given)
        except (ConfigError, HydraException):
            assert remake.gone(results.command), name
            assert f"    {remake.no_longer(remake.gone(results.command))}\n" in listed
        else:
            recipe = next(word.partition("=")[2] for word in given if word.startswith("recipe="))
            assert composed.pipeline, name
            errors = validation.settings(composed, recipe)
            # A benchmark makes the files of some commands before it runs them.
            files = ("no such", "must be a file or folder that exists")
            assert [error for error in errors if not any(part in error for part in files)] == [], name


def test_a_command_whose_setting_is_gone_is_refused_and_nothing_starts(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = root / "docs/results/small/results.json"
    command = "python -m distill recipe=prune stages.recover.melt=3 seed=2 +term@stages.recover.terms.x=gone output=x"
    file.write_text(json.dumps(complete() | {"command": command}))
    monkeypatch.setattr(remake, "run", lambda folder, arguments: pytest.fail("started"))
    sentence = "made by settings that no longer exist: stages.recover.melt=3, +term@stages.recover.terms.x=gone"
    assert remake.main([], root) == 0
    assert capsys.readouterr().out.count(sentence) == 1
    assert remake.main(["small"], root) == 2
    assert capsys.readouterr().err == f"NAME: got small; {sentence}; must be another run; choose one\n"


def test_a_run_that_is_not_committed_is_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert remake.main(["smal"], root) == 2
    assert capsys.readouterr().err == "NAME: got smal; must be of own-sentiment, small; choose one of these\n"


def test_a_run_is_made_again_by_its_command(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
    monkeypatch.setattr(remake, "missing", lambda folder, contents: 0)
    assert remake.main(["small", "own-sentiment"], root) == 0
    minutes = sum(stage["seconds"] or 0 for stage in complete()["stages"]) / 60
    cpu = complete()["environment"]["cpu"]
    assert f"small: its steps took {minutes:.0f} minutes on {cpu} with 2 threads\n" in capsys.readouterr().out
    own = "outputs/own"
    assert [folder for folder, _ in called[1:]] == [own, own, "."]
    assert called[0][0].startswith(f"{own}/")  # the files move when all are made
    assert sorted(path.name for path in (root / own).glob("*.csv")) == ["sentiment.csv", "sentiment_test.csv"]
    assert called[3][1] == ["-m", "distill", "recipe=distilbert", "output=outputs/again/small"]
    assert "tasks.train=sentiment.csv" in called[1][1]
    assert "pipeline=[finetune_teacher]" in called[1][1]
    assert called[2][1][-2:] == ["target.speedup=[2,4]", "output=run"]
    assert (root / own / "my-bert" / "results.json").is_file()
    for name, output in (("small", "outputs/again/small"), ("own-sentiment", "run")):
        assert json.loads((root / "docs/results" / name / "results.json").read_text()) == {"made": output}


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, list[str]]]:
    """What is run instead of running it; each run writes its results."""
    every: list[tuple[Path, list[str]]] = []

    def run(folder: Path, arguments: Sequence[str]) -> int:
        every.append((folder, list(arguments)))
        for word in arguments:
            if word.startswith("output="):
                made = folder / word.removeprefix("output=") / "results.json"
                made.parent.mkdir(parents=True)
                made.write_text("{}")
        return 0

    monkeypatch.setattr(remake, "run", run)
    return every


def commit(root: Path, name: str, command: str) -> None:
    file = root / "docs/results" / name / "results.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(complete() | {"command": f"python -m distill {command}"}))


def test_the_name_of_a_page_is_all_of_its_seeds(root: Path, called: list[tuple[Path, list[str]]]) -> None:
    for seed in (0, 1):
        commit(root, f"curve/seed{seed}", f"recipe=prune seed={seed} output=same")
    commit(root, "curve/8x/seed0", "recipe=prune output=same")
    assert remake.main(["curve"], root) == 0
    assert [words[-2:] for _, words in called] == [
        [f"seed={seed}", f"output=outputs/again/curve/seed{seed}"] for seed in (0, 1)
    ]


def test_a_run_of_a_kind_gets_its_files_first(
    root: Path, called: list[tuple[Path, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    monkeypatch.setattr(remake.kinds, "FOLDER", root / "outputs/kinds")
    monkeypatch.setattr(remake.kinds, "files", made.append)
    monkeypatch.setattr(remake, "missing", lambda folder, contents: 0)
    words = remake.kinds.command("names", 0)
    commit(root, "kinds/names/seed0", " ".join(words[2:]))
    assert remake.main(["kinds/names"], root) == 0
    assert len(made) == 1
    assert called == [(root / "outputs/kinds", words)]


def test_the_example_gets_its_files_first(root: Path, called: list[tuple[Path, list[str]]]) -> None:
    commit(root, "example", "recipe=auto tasks.train=tickets.csv output=outputs/tickets")
    assert remake.main(["example"], root) == 0
    again = root / "outputs/again"
    run = ["-m", "distill", "recipe=auto", "tasks.train=tickets.csv", "output=outputs/tickets"]
    assert called == [(root, ["-m", "distill.example", str(again)]), (again, run)]
    assert (root / "docs/results/example/results.json").read_text() == "{}"


@pytest.mark.parametrize("kind", remake.kinds.KINDS)
def test_the_command_of_every_kind_is_composed(kind: str) -> None:
    assert remake.gone(shlex.join(["python", *remake.kinds.command(kind, 0)])) == []


def test_a_teacher_that_a_benchmark_makes_is_made_if_it_is_missing(
    root: Path, called: list[tuple[Path, list[str]]]
) -> None:
    commit(root, "large", "recipe=prune teacher.name=outputs/bert-base output=x")
    commit(root, "own", "recipe=prune teacher.name=outputs/mine output=x")
    (root / "outputs/mine").mkdir(parents=True)
    assert remake.main(["large", "own"], root) == 0
    assert [words[1] for _, words in called] == ["benchmarks.bert_base", "distill", "distill"]


def test_a_failed_run_replaces_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = root / "docs/results/small/results.json"
    before = file.read_bytes()
    monkeypatch.setattr(remake, "run", lambda folder, arguments: 3)
    assert remake.main(["small"], root) == 3
    assert file.read_bytes() == before
