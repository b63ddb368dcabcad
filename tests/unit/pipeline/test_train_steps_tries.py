"""Which of several trainings is kept, with trainings that only write what they would have made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from distill.config import Baseline, Train, load_config
from distill.config.baselines import trained
from distill.errors import UserError
from distill.evaluation.tried import Tried, Try
from distill.pipeline.artefacts import TaskModel, Trained
from distill.pipeline.train_steps.prepare import forget_training
from distill.pipeline.train_steps.tries import Kept, kept_try, tried_in
from distill.runtime.storage import atomic, run_folder, structs
from distill.training.nonfinite import NotFinite
from tests.rounds import made

Score = Callable[[float, int], float | None]
"""(learning rate, seed) -> development score; None without development rows."""


@dataclass(frozen=True)
class Inputs:
    lr: float = 1.0
    seed: int = 3
    name: str = "finetune"


@dataclass
class Run:
    folder: Path
    score: Score

    def __post_init__(self) -> None:
        self.lines: list[str] = []
        self.fitted: list[tuple[float, int]] = []
        accelerator = SimpleNamespace(free_memory=lambda: None)
        machine = SimpleNamespace(main=True, wait=lambda: None, log=self.lines.append, accelerator=accelerator)
        self.runtime: Any = SimpleNamespace(folder=self.folder, machine=machine)

    def fit(self, inputs: Any, folder: str, runtime: Any) -> None:
        self.fitted.append((inputs.lr, inputs.seed))
        score = self.score(inputs.lr, inputs.seed)
        tries = [Try(lr=inputs.lr, seed=inputs.seed, score=score, collapsed=score is not None and score <= 50)]
        tried = None if score is None else Tried(task="a", chance=50.0, tries=tries)
        with atomic.writing(self.folder / folder) as temporary:
            made = TaskModel(steps=7, tokens=10, seconds=2.0, tried=tried)
            structs.write(temporary / run_folder.MANIFEST, made)

    def kept(self, **settings: Any) -> Kept:
        inputs: Any = Inputs()
        return made(kept_try(inputs, Train(data="tasks", **settings), "a", self.fit, self.runtime), self.runtime)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run_folder.claim(tmp_path)
    return tmp_path


def diverging(lr: float, seed: int) -> float:
    if lr > 1:
        raise NotFinite("loss: got nan at step 3; must be finite; lower optimizer.lr")
    return 60.0 + lr


def test_the_first_of_equal_rates_is_kept_and_each_is_tried_once(folder: Path) -> None:
    run = Run(folder, lambda lr, seed: 70.0 if lr >= 1 else 60.0)
    kept = run.kept(lr_factors=[0.5, 2, 1, 2, 4])
    assert run.fitted == [(0.5, 3), (2.0, 3), (1.0, 3), (4.0, 3)]
    assert (kept.inputs.lr, kept.folder) == (2.0, folder / "finetune" / "a.tries" / "2")
    assert (kept.made.steps, kept.made.tokens, kept.made.seconds) == (7, 40, 8.0)
    assert kept.made.tried is not None
    assert [each.kept for each in kept.made.tried.tries] == [False, True, False, False]


def test_seeds_are_tried_until_a_model_has_not_collapsed(folder: Path) -> None:
    run = Run(folder, lambda lr, seed: 50.0 + (seed == 2003))
    assert run.kept(retries=5).inputs.seed == 2003
    assert run.fitted == [(1.0, 3), (1.0, 1003), (1.0, 2003)]
    again = Run(folder, run.score)  # a run that was stopped before the model of the task was whole
    assert again.kept(retries=5).inputs.seed == 2003
    assert again.fitted == []


@pytest.mark.parametrize("score", [50.1, None])
def test_a_model_that_has_not_collapsed_or_has_no_rows_is_trained_once(folder: Path, score: float | None) -> None:
    run = Run(folder, lambda lr, seed: score)
    assert run.kept(retries=5).inputs.seed == 3
    assert run.fitted == [(1.0, 3)]


def test_a_rate_that_diverges_does_not_end_the_run_unless_all_do(folder: Path) -> None:
    run = Run(folder, diverging)
    kept = run.kept(lr_factors=[2, 1, 0.5])
    assert kept.inputs.lr == 1.0
    assert kept.made.tried is not None
    assert [each.failed for each in kept.made.tried.tries] == ["loss: got nan at step 3", "", ""]
    forget_training("finetune/a", run.runtime)
    assert not list((folder / "finetune").iterdir())
    with pytest.raises(UserError, match=r"finetune/a: loss: got nan at step 3, in each of 4 tries; lower optimizer.lr"):
        run.kept(lr_factors=[4, 2], retries=2)
    assert run.fitted[3:] == [(4.0, 3), (2.0, 3), (2.0, 1003), (2.0, 2003)]  # again with the lowest rate
    run.score = lambda lr, seed: 60.0  # the same command, e.g. on another device
    assert run.kept(lr_factors=[4, 2], retries=2).inputs.lr == 4.0


def test_a_rate_that_diverges_is_no_better_than_a_model_without_a_score(folder: Path) -> None:
    """Of a task without development rows, which is not trained a third time."""

    def score(lr: float, seed: int) -> None:
        if seed == 3:
            raise NotFinite("loss: got nan at step 3; must be finite; lower optimizer.lr")

    run = Run(folder, score)
    kept = run.kept(retries=5)
    assert (kept.inputs.seed, kept.made.steps, kept.made.tried) == (1003, 7, None)
    assert run.fitted == [(1.0, 3), (1.0, 1003)]
    assert run.lines[0] == "finetune/a.tries/1: loss: got nan at step 3"  # no file that is removed is named


def test_what_was_tried_is_that_of_all_members(folder: Path) -> None:
    every = {("1", "a"): 60.0, ("1", "b"): 40.0, ("2", "a"): 70.0, ("2", "b"): 80.0}
    for (member, task), score in every.items():
        tried = Tried(task=task, chance=50.0, tries=[Try(lr=1.0, seed=0, score=score)])
        made = TaskModel(steps=1, tokens=1, seconds=1.0, tried=tried)
        (folder / "teacher" / member / task).mkdir(parents=True)
        structs.write(folder / "teacher" / member / task / run_folder.MANIFEST, made)
        structs.write(folder / "teacher" / member / run_folder.MANIFEST, Trained(tasks=["a", "b"]))
    structs.write(folder / "teacher" / run_folder.MANIFEST, Trained(members=["1", "2"]))
    found = tried_in(folder / "teacher")
    assert {(str(each.member), each.task): each.kept.score for each in found} == every


def test_a_baseline_has_the_tries_of_its_student_and_may_have_rates_of_its_own() -> None:
    config = load_config(["recipe=task", "stages.finetune.retries=2", "stages.finetune.lr_factors=[1,2]"])
    own, others = config.stages["finetune_baseline"], config.stages["finetune_self_trained"]
    assert isinstance(own, Baseline)
    assert isinstance(others, Baseline)
    own.lr_factors = [0.5]
    assert [trained(config, name).lr_factors for name in ("finetune_baseline", "finetune_self_trained")] == [
        [0.5],
        [1, 2],
    ]
    assert trained(config, "finetune_baseline").retries == 2
    assert not hasattr(own, "retries")
