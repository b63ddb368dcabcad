"""Stages that try several learning rates, or another seed for a model that collapsed, from the command to the model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distill.errors import ConfigError, Stopped
from distill.pipeline.artefacts import TaskModel
from distill.pipeline.train_steps import development_rows, tasks
from distill.pipeline.train_steps.prepare import Training
from distill.runtime.storage import run_folder, structs
from tests import tiny

WORDS = sorted({word for sentence in tiny.SENTENCES for word in sentence.split()})
FILES = ("tasks.train=a.csv", "tasks.development=b.csv", "tasks.test=c.csv", "tasks.metrics=[accuracy]")
FEW = ("limit=smoke", "limit.steps=6", "transfer=none", "pipeline=[finetune_baseline]")
MODEL = "finetune_baseline/a"
RATE = 0.016
RATES = "stages.finetune_baseline.lr_factors=[0.5,1,2]"


def write(path: Path, count: int, seed: int) -> None:
    """Rows of four random words, with the label yes where the first word comes before the second."""
    drawn = [list(np.random.default_rng([seed, row]).choice(WORDS, 4)) for row in range(count)]
    lines = [f"{' '.join(row)},{'yes' if row[0] < row[1] else 'no'}" for row in drawn]
    path.write_text("\n".join(["text,label", *lines]) + "\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tries")
    for name, count in (("a", 48), ("b", 24), ("c", 24)):
        write(made / f"{name}.csv", count, seed=count)
    tiny.save(made / "given", "bert", "", length=130)
    return made


Made = tuple[TaskModel, bytes]


@pytest.fixture(scope="module")
def trained(run: Any, folder: Path) -> Any:
    """`trained(name, *settings)`: the manifest and the weights of a baseline that was trained in a folder."""

    def call(name: str, *settings: str, rate: float = RATE) -> Made:
        lr = f"stages.finetune.optimizer.lr={rate}"
        given = ("teacher.name=given", "student.name=given")
        run(folder, "task", *given, *FILES, *FEW, lr, *settings, f"output={name}")
        stage = folder / name / "finetune_baseline"
        assert [path.name for path in stage.iterdir() if path.is_dir()] == ["a"]  # nothing else is left
        made = structs.read(stage / "a" / run_folder.MANIFEST, TaskModel)
        return made, (stage / "a" / "model.safetensors").read_bytes()

    return call


@pytest.fixture(scope="module")
def tuned(trained: Any) -> Made:
    made: Made = trained("tuned", RATES)
    return made


def scripted(patch: pytest.MonkeyPatch, scores: list[float], chance: float = 50.0) -> None:
    """Let models have these scores, one after the other, and a predictor without any skill this one."""
    left: Iterator[float] = iter(scores)
    patch.setattr(development_rows.DevelopmentRows, "_score", lambda self, outputs: next(left))
    patch.setattr(development_rows.DevelopmentRows, "chance", chance)
    patch.setattr(development_rows.DevelopmentRows, "constant", lambda self, model: True)


@pytest.mark.slow
def test_the_model_is_the_best_of_runs_with_one_rate_each(tuned: Made, trained: Any) -> None:
    """Bit for bit, of runs of their own. None of them has tries, or a score, since the numbers of smoke runs mean
    nothing."""
    made, weights = tuned
    assert made.tried is not None
    assert [each.lr for each in made.tried.tries] == pytest.approx([RATE / 2, RATE, RATE * 2])
    assert {each.seed for each in made.tried.tries} == {0}
    scores = [each.score for each in made.tried.tries]
    best = scores.index(max(scores))
    assert [each.kept for each in made.tried.tries] == [number == best for number in range(3)]
    alone = [trained(f"alone-{factor}", rate=RATE * factor) for factor in (0.5, 1.0, 2.0)]
    assert [weights == each for _, each in alone] == [number == best for number in range(3)]
    assert all(each.tried is None for each, _ in alone)
    assert made.tokens == sum(each.tokens for each, _ in alone)
    assert made.steps == alone[best][0].steps


@pytest.mark.slow
def test_a_stopped_run_trains_no_finished_rate_again(
    tuned: Made, trained: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, names = tasks.trained, list[str]()

    def stopping(training: Training, *others: Any) -> Any:
        names.append(training.name)
        if len(names) == 2:
            raise Stopped("stopped")
        return train(training, *others)

    monkeypatch.setattr(tasks, "trained", stopping)
    with pytest.raises(Stopped):
        trained("stopped", RATES)
    assert (folder / "stopped" / f"{MODEL}.tries" / "1" / run_folder.MANIFEST).is_file()
    made, weights = trained("stopped", RATES)
    assert names == [f"{MODEL}.tries/{number}" for number in (1, 2, 2, 3)]
    assert weights == tuned[1]
    assert made.tried == tuned[0].tried


@pytest.mark.slow
def test_a_model_that_collapsed_is_trained_again_with_other_seeds(
    trained: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Until one has not collapsed: the model of a run with its seed, bit for bit. The student's setting counts."""
    scripted(monkeypatch, [50.0, 40.0, 60.0])
    made, weights = trained("again", "stages.finetune.retries=5")
    assert made.tried is not None
    found = [(each.seed, each.score, each.kept) for each in made.tried.tries]
    assert found == [(0, 50.0, False), (1000, 40.0, False), (2000, 60.0, True)]
    assert weights == trained("seed", "seed=2000")[1]
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{MODEL}: collapsed, and is trained again with seed 2000 (try 2 of 5)" in shown
    assert "0.016 with seed 0: 50.0; 0.016 with seed 1000: 40.0; 0.016 with seed 2000: 60.0 (kept)" in shown
    assert "the model collapsed" not in shown


@pytest.mark.slow
def test_the_first_of_equal_rates_is_tried_again_and_the_report_says_that_it_collapsed(
    trained: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted(monkeypatch, [50.0, 50.0, 50.0, 50.0])
    made, _ = trained("collapsed", RATES, "stages.finetune.retries=1")
    assert made.tried is not None
    rates = [each.lr / RATE for each in made.tried.tries]
    assert rates == [0.5, 1.0, 2.0, 0.5]
    assert [each.kept for each in made.tried.tries] == [True, False, False, False]
    assert "the model collapsed with each of 2 seeds: it scores 50.0" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_a_rate_that_diverges_is_a_try_without_a_model(trained: Any, tuned: Made) -> None:
    made, _ = trained("diverged", "stages.finetune_baseline.lr_factors=[1e30,1]")
    assert made.tried is not None
    broken, kept = made.tried.tries
    assert broken.score is None
    assert broken.failed.startswith(("gradients: got", "loss: got", "weights: got"))
    assert kept.kept
    assert tuned[0].tried is not None
    assert kept.score == tuned[0].tried.tries[1].score


def test_rates_are_refused_without_rows_to_choose_by(run: Any, folder: Path) -> None:
    few = [name for name in FILES if "development" not in name]
    (folder / "few.csv").write_text("\n".join((folder / "a.csv").read_text().splitlines()[:10]) + "\n")
    few[0] = "tasks.train=few.csv"
    with pytest.raises(ConfigError, match=r"stages.finetune_baseline.lr_factors: got \[0.5, 1.0, 2.0\]; must be left "):
        run(folder, "task", "teacher.name=given", "student.name=given", *few, *FEW, RATES, "output=refused")
