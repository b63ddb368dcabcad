"""With a budget: how much of a training there is time for."""

from __future__ import annotations

import dataclasses
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from distill.config import Prune, Train
from distill.config.plan import Step
from distill.config.schemes import Form
from distill.pipeline import clock
from distill.pipeline.budget import LEAST_SHARE, Ladder, _made, counted, judged_on, recover, share_of, spent
from distill.pipeline.context.folder import RunFolder
from distill.runtime.storage import atomic, run_folder


@pytest.mark.parametrize(
    ("estimated", "left", "share"),
    [(60.0, 120.0, 1.0), (100.0, 50.0, 0.5), (100.0, 100 * LEAST_SHARE - 1, 0.0), (10.0, -5.0, 0.0), (0.0, -5.0, 1.0)],
)
def test_trains_as_much_as_there_is_time_for(estimated: float, left: float, share: float) -> None:
    assert share_of(estimated, left) == share


@pytest.mark.parametrize(("in_headline", "expected"), [(True, 75.0), (False, 90.0)])
def test_a_task_counts_by_its_setting_and_not_by_its_name(in_headline: bool, expected: float) -> None:
    """The teacher scores 50 on both tasks; a model of 30 and 45 points retains 75% of that, or 90% on rte alone."""
    assert retained(50.0, in_headline=in_headline) == pytest.approx(expected)


STEP: Any = "2x"
FORM: Any = SimpleNamespace(key="onnxruntime")


def ladder(
    scores: dict[str, dict[str, dict[str, float]]], *, in_headline: bool = True, failed: dict[str, str] | None = None
) -> Ladder:
    """Of the tasks wnli, which may be in the headline, and rte. `scores`: step -> task -> form -> points."""
    tasks = {
        name: SimpleNamespace(
            task=SimpleNamespace(in_headline=True), development={"development": ()}, reported={"test": ()}
        )
        for name in ("wnli", "rte")
    }
    tasks["wnli"].task.in_headline = in_headline
    made = {step: SimpleNamespace(development=of, failed=failed or {}) for step, of in scores.items()}
    folder = SimpleNamespace(result=lambda step, kind: made[step])
    parts: Any = {"folder": folder, "tasks": tasks, "teacher": "teacher"}
    others: Any = dict.fromkeys({field.name for field in dataclasses.fields(Ladder)} - parts.keys())
    return Ladder(**parts, **others)


def retained(of_teacher: float, *, in_headline: bool = True) -> float | None:
    """Of a model with 30 points on wnli, where the teacher scores this, and 45 on rte, where it scores 50."""
    scores = {"teacher": {"wnli": {"float32": of_teacher}, "rte": {"float32": 50.0}}}
    scores["2x"] = {"wnli": {"onnxruntime": 30.0}, "rte": {"onnxruntime": 45.0}}
    return ladder(scores, in_headline=in_headline).retained(STEP, FORM)


WHOLE, FILE = {"rte": {"float32": 50.0}}, {"rte": {"onnxruntime": 45.0}}
UNKNOWN = "has no known share of the teacher's score"


@pytest.mark.parametrize(
    ("whole", "model", "failed", "words"),
    [
        (WHOLE, FILE, {}, "retains 90.0% on the development rows"),
        ({"rte": {"float32": 0.0}}, FILE, {}, "has no share, because the teacher scores 0 or less"),
        (WHOLE, {}, {"onnxruntime": "it loses 9 points"}, "has no file in this form, or loses more than its limits"),
        # Earlier versions did not record the score of a float model of which no file was made.
        ({}, {}, {}, UNKNOWN),
        ({}, FILE, {}, UNKNOWN),
        (WHOLE, {"rte": {"float32": 48.0}}, {}, UNKNOWN),
    ],
)
def test_no_reason_is_given_that_was_not_recorded(whole: Any, model: Any, failed: dict[str, str], words: str) -> None:
    """Where the score of a form was not recorded, the teacher was said to score 0 or less."""
    made = ladder({"teacher": whole, "2x": model}, in_headline=False, failed=failed)
    assert made.said(STEP, FORM) == words


def test_a_task_without_a_share_is_left_out_as_the_report_leaves_it_out() -> None:
    """The teacher scores 0 on it. Before, its points counted for the model, which retained 150%."""
    assert retained(0.0) == pytest.approx(90.0)


MIXED = "the development rows, which for b are the reported rows"


@pytest.mark.parametrize(
    ("chosen_on", "words"),
    [
        ({"a": "development", "b": "development"}, "the development rows"),
        ({"a": "development", "b": "validation"}, MIXED),
        ({"a": "validation", "b": "validation"}, "the reported rows (there are no others to choose on)"),
        ({"a": "development", "b": "development", "aside": "validation"}, "the development rows"),
    ],
)
def test_the_rows_that_a_budget_decides_on_are_named(chosen_on: dict[str, str], words: str) -> None:
    tasks: Any = {
        name: SimpleNamespace(
            task=SimpleNamespace(in_headline=name != "aside"), development={split: ()}, reported={"validation": ()}
        )
        for name, split in chosen_on.items()
    }
    assert judged_on(tasks) == words


def test_speedups_are_measured_again_under_other_conditions(tmp_path: Path) -> None:
    """A run that goes on with another number of threads."""
    measured = list[int]()

    def search(threads: int) -> Any:
        def whole() -> tuple[Form, float]:
            measured.append(threads)
            return Form("torch", "fp32"), float(threads)

        times = SimpleNamespace(speedup=lambda shape: 9.0)
        return SimpleNamespace(
            conditions={"threads": threads}, forms=[], whole=whole, times=times, shapes=["a"], checked=True
        )

    step = SimpleNamespace(settings=Prune(), goal=SimpleNamespace(speedup=2.0))
    machine = SimpleNamespace(main=True, main_first=nullcontext)
    parts: Any = {"folder": SimpleNamespace(ladder=tmp_path / "ladder.json"), "machine": machine}
    parts |= {"targets": {"2x": [step]}}
    others: Any = dict.fromkeys({field.name for field in dataclasses.fields(Ladder)} - parts.keys())
    found = [
        Ladder(**parts, **(others | {"search": lambda step, threads=threads: search(threads)})).speedups()[0]
        for threads in (1, 1, 2)
    ]
    assert (found, measured) == ([1.0, 1.0, 2.0], [1, 2])


def test_time_before_a_stop_counts_and_time_without_one_is_counted_once(tmp_path: Path) -> None:
    """A run that goes on has what is left of its minutes."""
    run_folder.claim(tmp_path)
    folder = RunFolder(tmp_path)
    with counted(folder, time.monotonic() - 60):
        pass  # the rest of the run counts it from its beginning on
    assert spent(folder) == 0.0
    for stops in (1, 2):
        with pytest.raises(KeyboardInterrupt), counted(folder, time.monotonic() - 60):
            raise KeyboardInterrupt
        assert spent(folder) == pytest.approx(60 * stops, abs=1)


def test_a_killed_run_has_spent_what_its_clock_wrote_last(tmp_path: Path) -> None:
    """It cannot write when it is killed. What was written stays, as at the end of the block before the next one."""
    run_folder.claim(tmp_path)
    folder = RunFolder(tmp_path)
    for tries in (1, 2):
        with counted(folder, time.monotonic() - 60):
            pass
        for _ in range(2):
            recover(folder)
            assert spent(folder) == pytest.approx(60 * tries, abs=1)
        assert not folder.clock.exists()


def test_the_seconds_of_a_target_are_counted_once(tmp_path: Path) -> None:
    run_folder.claim(tmp_path)
    folder = RunFolder(tmp_path)
    parts: Any = {"folder": folder, "machine": SimpleNamespace(main=True, wait=lambda: None)}
    others: Any = dict.fromkeys({field.name for field in dataclasses.fields(Ladder)} - parts.keys())
    with Ladder(**parts, **others).clock("4x", time.monotonic() - 60):
        written = clock.found(folder.clock)
    assert written == {"4x": pytest.approx(60, abs=1)}
    assert not folder.clock.exists()
    atomic.write_json(folder.clock, written)  # as if it had been killed before it removed the file
    recover(folder)
    assert spent(folder) == pytest.approx(60, abs=1)


def test_no_model_is_cut_when_no_time_is_left(tmp_path: Path) -> None:
    said = list[str]()
    made: Any = SimpleNamespace(targets={"4x": []}, stored={"shares": {}}, left=lambda: -1.0)
    assert not _made(made, "4x", lambda step: pytest.fail("a step was run"), {}, said.append)
    assert said == ["4x is not made, because no time is left."]


@pytest.mark.parametrize(
    ("rows", "left", "steps", "advice"),
    [
        (400_000, 600.0, 0, " With limit.examples=36000 there is enough time for it."),
        (400_000, 600.0, 300, ""),
        (400_000, -5.0, 0, ""),
        (3000, 600.0, 0, ""),
    ],
)
def test_fewer_of_many_rows_are_advised_where_the_time_is_not_enough(
    rows: int, left: float, steps: int, advice: str
) -> None:
    """A tenth of the time, so about a tenth of the rows. Before, the end named only the minutes that were missing."""
    folder = SimpleNamespace(result=lambda step, kind: SimpleNamespace(steps=steps))
    made: Any = SimpleNamespace(folder=folder, left=lambda: left, estimate=lambda label: 6000.0)
    made.teacher = SimpleNamespace(start=Step("finetune_teacher", Train(role="teacher")))
    made.tasks = {"own": SimpleNamespace(train=range(rows))}
    assert Ladder.advice(made, "2x") == advice
