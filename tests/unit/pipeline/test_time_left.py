"""What a run says of its steps: how many there are, and how long the rest takes, if anything tells."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset

from distill.config import load_config
from distill.config.plan import Step, resolve
from distill.config.stages import STAGES
from distill.pipeline.artefacts import Cost, Record, Trained
from distill.pipeline.context.folder import RunFolder
from distill.pipeline.context.keys import Keys
from distill.pipeline.time_left import Remaining, time_left
from distill.runtime import progress
from distill.runtime.storage import cache

TOKENS = 20
"""Tokens of each row."""
OTHERS: dict[str, dict[str, Any]] = {"rows": {"rows": 1500}, "threads": {"threads": 4}}
"""Folder of a run -> what differs from the first run."""


class Run:
    """A run whose steps take a number of seconds that is only recorded, and what it says of each step."""

    def __init__(self, folder: Path, *settings: str, rows: int = 1000, threads: int = 2) -> None:
        self.config, self.folder, self.said = load_config(["recipe=prune", *settings]), RunFolder(folder), list[str]()
        self.machine = SimpleNamespace(
            main=True, log=self.said.append, device=torch.device("cpu"), threads=threads, shared_threads=2, precision=""
        )
        self.machine.fast_float32, self.machine.accelerator = True, SimpleNamespace(num_processes=1)
        self.epochs: dict[str, float] = {}
        train = Dataset.from_dict({"row": list(range(rows))})
        task = SimpleNamespace(train=train, encoded=lambda rows, *_: SimpleNamespace(lengths=[TOKENS] * len(rows)))
        self.plan, self.step_tasks = resolve(self.config), {"order": task}
        self.given = SimpleNamespace(tokenizer=None)
        machine: Any = self.machine
        self.keys = Keys(self.config, self.plan, machine, self.folder, {}, None, self.fingerprint)

    def fingerprint(self, name: str) -> str:
        return name

    def make(self, end: float | None = None, seconds: float = 120.0, reused: bool = False) -> list[str]:
        ctx: Any = self
        remaining = Remaining(ctx, self.plan.steps, end)
        for step in self.plan.steps:
            with remaining.making(step):
                self.finish(step, seconds, reused)
        return self.said

    def finish(self, step: Step, seconds: float, reused: bool) -> None:
        cost = Cost(seconds=seconds, peak_memory_mib=None)
        record = Record(key=self.keys.without_settings(step), cost=cost, reused=reused)
        self.folder.complete(step, Trained(seconds=seconds), record)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path) -> Iterator[None]:
    with cache.using(tmp_path / "cache"):
        yield


def test_the_time_left_is_that_of_an_alike_run_before_or_unknown(tmp_path: Path) -> None:
    first = Run(tmp_path / "1").make()
    assert first[0] == "finetune_teacher: step 1 of 7, time left unknown"
    assert first[6] == "export: step 7 of 7, time left unknown"
    again = Run(tmp_path / "2", "seed=1", rows=1010).make(seconds=60)
    assert again[0] == "finetune_teacher: step 1 of 7, about 14 minutes left"
    assert again[5] == "evaluate: step 6 of 7, about 4 minutes left"
    faster = Run(tmp_path / "3", "target.speedup=8").make()
    assert faster[0] == "finetune_teacher: step 1 of 7, 1 minute or more left"  # as it took last
    assert all("unknown" in Run(tmp_path / name, **other).make(reused=True)[0] for name, other in OTHERS.items())


def test_the_plan_has_what_each_step_does_and_took(tmp_path: Path) -> None:
    def plan(name: str, finished: int = 0) -> list[str]:
        run: Any = Run(tmp_path / name)
        return list(Remaining(run, run.plan.steps[finished:]).plan(run.plan.steps))

    first = plan("1")
    assert first[0] == "plan: 7 steps, time left unknown"
    assert first[1:3] == [
        "   1. finetune_teacher: train the teacher on each task, unless it has a head for it",
        "   2. prune: search for a shape that meets the target, and prune to it",
    ]
    assert len(first) == 8
    Run(tmp_path / "2").make(seconds=150)
    again = plan("3", finished=1)
    assert again[0] == "plan: 7 steps, about 15 minutes left"
    assert again[1].endswith("has a head for it; finished earlier")
    assert again[7] == "   7. export: write the folders to deploy, and verify each; about 3 minutes"
    run: Any = Run(tmp_path / "4")
    assert not list(Remaining(run, [], end=60.0).plan(run.plan.steps))


@pytest.mark.parametrize("kind", STAGES)
def test_every_kind_of_stage_says_what_it_does(kind: str) -> None:
    assert STAGES[kind]().about


def test_a_step_of_another_target_tells_and_what_was_not_made_does_not(tmp_path: Path) -> None:
    run = Run(tmp_path / "1", "target.speedup=[2,4]")
    said = dict(line.split(": step ") for line in run.make(seconds=60))
    assert said["prune/2x"].endswith("time left unknown")
    assert said["recover/4x"].endswith("1 minute or more left")
    Run(tmp_path / "2").make(reused=True)
    assert Run(tmp_path / "3").make()[1].endswith("unknown")


def test_a_training_takes_as_long_as_its_tokens_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Callable[[float | None], str]] = []
    monkeypatch.setattr(progress, "within", lambda whole: nullcontext(shown.append(whole)))
    sizes = ["stages.finetune_teacher.epochs=2", "stages.finetune_teacher.min_steps=0", "stages.recover.epochs=4"]
    run = Run(tmp_path / "1", *sizes, "stages.recover.min_steps=0", "pipeline=[finetune_teacher,prune,recover]")
    ctx: Any = run
    remaining = Remaining(ctx, run.plan.steps)
    with remaining.making(run.plan.steps[0]):
        assert shown[0](None) == "step 1 of 3, time left unknown"
        updates = (2 + 4) * 1000 / 32  # epochs, rows, and rows of an optimizer step
        assert shown[0](2.0) == f"step 1 of 3, roughly {math.ceil(updates * 2 / 60)} minutes of training left"
        run.finish(run.plan.steps[0], 60.0, reused=False)
    with remaining.making(run.plan.steps[1]):
        pass
    assert run.said[-1] == "prune: step 2 of 3, roughly 2 minutes of training left"


def test_a_stage_with_several_rates_takes_as_many_times_as_long(tmp_path: Path) -> None:
    def steps(*settings: str) -> list[float]:
        ctx: Any = Run(tmp_path / "1", *settings)
        return [work.steps for work in Remaining(ctx, ctx.plan.steps).works.values() if work is not None]

    teacher, student, baseline = steps()
    assert steps("stages.recover_baseline.lr_factors=[0.5,1,2,1]") == [teacher, student, 3 * baseline]
    assert steps("stages.recover.lr_factors=[0.5,1]") == [teacher, 2 * student, 2 * baseline]
    both = ["stages.finetune_teacher.lr_factors=[0.5,1]", "stages.finetune_teacher.folds=5"]
    assert steps(*both) == [6 * teacher, student, baseline]


def test_with_a_budget_the_time_left_is_the_budgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distill.pipeline.time_left.time.monotonic", lambda: 100.0)
    said = Run(tmp_path / "1").make(end=700.0)
    assert said[0] == "finetune_teacher: step 1, 10 minutes of the budget left"
    assert said[1] == "prune: step 2, 10 minutes of the budget left"


def test_the_time_left_is_a_phrase() -> None:
    assert time_left([None, None]) == "time left unknown"
    assert time_left([30.0]) == "about 1 minute left"
    assert time_left([100.0, None, 200.0]) == "5 minutes or more left"
