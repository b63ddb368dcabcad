"""What is typed in another order, and what a first try names wrongly."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import distill
from distill import config
from distill.cli import predict
from distill.config.typed import options_last
from distill.data.tasks import load_tasks
from distill.deploy.export.record import located
from distill.deploy.serve import load
from distill.errors import UserError
from distill.models.families.weights import config_of
from distill.pipeline.context.keys import _outside_of_stages
from distill.pipeline.validation import settings
from distill.pipeline.validation.words import problems
from distill.runtime.storage import run_folder
from tests import tiny


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        (["recipe=auto", "-m", "seed=0,1"], ["recipe=auto", "seed=0,1", "-m"]),
        (["recipe=auto", "--cfg", "job", "seed=0"], ["recipe=auto", "seed=0", "--cfg", "job"]),
        (["a=1", "--config-dir", ".", "b=2", "-m"], ["a=1", "b=2", "--config-dir", ".", "-m"]),
        (["a=1", "b=2"], ["a=1", "b=2"]),
        (["a=1", "--info"], ["a=1", "--info"]),
        (["--info", "a=1", "~b"], ["a=1", "~b", "--info"]),
        (["-i", "defaults", "a=1"], ["a=1", "-i", "defaults"]),
    ],
)
def test_options_may_stand_anywhere(typed: list[str], wanted: list[str]) -> None:
    assert options_last(typed) == wanted


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        (["--teacher.name=x"], "command line: got --teacher.name=x; must be KEY=VALUE; set teacher.name=x"),
        (
            ["-m", "seed=0,1", "output=o"],
            "output: got o for several runs; must differ between them; leave it out, or set",
        ),
        (
            ["-m", "recipe=prune,task", "output=o"],
            "output: got o for several runs; must differ between them; leave it out",
        ),
        (
            ["-m", "seed=range(0,3)", "output=o"],
            "output: got o for several runs; must differ between them; leave it out, or set",
        ),
        (
            ["-m", "temperature=interval(1,8)", "hydra/sweeper=optuna", "output=o"],
            "output: got o for several runs; must differ between them; leave it out",
        ),
        (["-m", "recipe=glob(*)", "output=o"], "output: got o for several runs; must differ between them"),
        (["-m", "seed=choice(0,1)", "output=o"], "output: got o for several runs; must differ between them"),
    ],
)
def test_words_that_do_not_do_what_they_say(typed: list[str], line: str) -> None:
    (found,) = problems(typed)
    assert found.startswith(line)


@pytest.mark.parametrize(
    "typed",
    [
        ["-m", "seed=0,1", "output=o/${seed}"],
        ["-m", "seed=range(0,3)", "output=o/${seed}"],
        ["-m", "seed=0", "output=o"],
        ["--config-dir=.", "seed=0"],
        ["--info", "seed=0"],
        ["-m", "tasks.names=[a,b]", "output=o"],
        ["seed=0", "output=o"],
    ],
)
def test_words_that_are_right(typed: list[str]) -> None:
    assert list(problems(typed)) == []


def test_one_wrong_value_has_one_line() -> None:
    found = settings(config.load_config(["recipe=auto", "teacher.name=x", "target.speedup=0.5"]), "auto")
    assert [line for line in found if "speedup" in line] == [
        "target.speedup: got 0.5; must be > 1; 2 is twice as fast as the teacher"
    ]


@pytest.mark.parametrize("word", ["target.latency_ms=5ms", "target.size_mib=20MB", "target.speedup=[4,8x]"])
def test_a_target_of_a_chain_that_is_no_number_is_refused(word: str) -> None:
    """The plan, which has the slowest target first, is made before it is refused."""
    key = word.partition("=")[0]
    found = settings(config.load_config(["recipe=frontier", "target.speedup=null", word]), "frontier")
    assert [line.partition(":")[0] for line in found] == [key]


@pytest.mark.parametrize("file", ["config.json", "adapter_config.json"])
def test_the_last_checkpoint_of_a_training_is_named(file: str, tmp_path: Path) -> None:
    for number in (9, 272, 30):
        (tmp_path / f"checkpoint-{number}").mkdir()
        (tmp_path / f"checkpoint-{number}" / file).touch()
    with pytest.raises(UserError, match=rf"take its last checkpoint, {tmp_path}/checkpoint-272, or save"):
        config_of(tmp_path)


def test_the_snapshot_of_a_cache_is_named(tmp_path: Path) -> None:
    for place, revision in enumerate(("b2", "a1")):
        (tmp_path / "snapshots" / revision).mkdir(parents=True)
        (tmp_path / "snapshots" / revision / "config.json").touch()
        os.utime(tmp_path / "snapshots" / revision, (place, place))
    with pytest.raises(UserError, match=rf"take {tmp_path}/snapshots/a1, or save"):
        config_of(tmp_path)
    with pytest.raises(UserError, match=rf"take {tmp_path}/snapshots/a1, or choose another"):
        located(tmp_path)


def test_a_file_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny.save(tmp_path / "m", "bert", "SequenceClassification", num_labels=2)
    (tmp_path / "new.csv").write_text("text\na\n")
    assert predict.main([str(model), str(tmp_path / "new.csv")]) == 2
    assert f"new.csv, which is a file; must be texts; set --file {tmp_path}/new.csv" in capsys.readouterr().err


@pytest.mark.slow
def test_what_was_quantized_is_loaded_where_nothing_was_timed(tmp_path: Path) -> None:
    model = tiny.save(tmp_path / "m", "bert", "SequenceClassification", num_labels=2)
    distill.quantize(model, "onnxruntime", out=tmp_path / "q")
    found = load(tmp_path / "q")
    assert (found.backend, found.scheme) == ("onnxruntime", "int8")


def test_a_smoke_run_reads_the_files_of_each_task(tmp_path: Path) -> None:
    labels = ("one", "two", "three")
    rows = "\n".join(f"a text {n},{labels[n % 3]}" for n in range(40))
    (tmp_path / "t.csv").write_text(f"text,label\n{rows}\n")
    each: Any = {"queue": config.Task(train=str(tmp_path / "t.csv"))}
    loaded = load_tasks(config.Tasks(each=each), config.Limit(smoke=True), 0)
    assert loaded.tasks["queue"].task.labels == tuple(sorted(labels))
    assert not any(row.get("stand_in") for row in loaded.coverage)


def test_a_home_folder_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run_folder.run_folder("prune", [], "~/runs/x") == tmp_path / "runs" / "x"


def test_how_a_run_prints_does_not_change_what_is_trained() -> None:
    stage = config.load_config(["recipe=task"]).stages["finetune"]
    keys = [_outside_of_stages(config.load_config(["recipe=task", *more]), stage) for more in ([], ["log=json"])]  # type: ignore[arg-type]
    assert keys[0] == keys[1]
