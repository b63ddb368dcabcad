"""A tracker that fails ends no run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from distill.runtime.tracker import Tracker


def accelerator(failing: str, sent: list[Any]) -> Any:
    """One with a tracker, which raises an error where `failing` names it."""

    def did(what: str) -> None:
        if what == failing:
            raise ConnectionError("down")
        sent.append(what)

    tracker = SimpleNamespace(finish=lambda: did("finish"))
    made = SimpleNamespace(log_with=["mlflow"], trackers=[tracker])
    made.log = lambda values, step: [did(name) for name in values if made.trackers]
    return made


@pytest.mark.parametrize(
    ("failing", "expected"),
    [
        ("", ["a/loss", "b/loss", "finish"]),
        ("a/loss", ["finish"]),
        ("b/loss", ["a/loss", "finish"]),
        ("finish", ["a/loss", "b/loss"]),
    ],
)
def test_a_run_goes_on_without_a_tracker_that_fails(failing: str, expected: list[str]) -> None:
    sent, notes = list[Any](), list[str]()
    tracker = Tracker(accelerator(failing, sent), notes.append)
    tracker.log("a", 1, {"loss": 2.0})
    tracker.log("b", 1, {"loss": 1.0})
    tracker.end()
    assert sent == expected
    assert notes == (["tracker: ConnectionError: down; the run goes on without it"] if failing else [])


def test_steps_ascend_after_a_training_that_did_not_finish() -> None:
    steps = list[int]()
    made: Any = SimpleNamespace(trackers=[], log=lambda values, step: steps.append(step))
    tracker = Tracker(made)
    for stage, done in {"a": (5, 10), "a.tries/1": (5, 20), "a.tries/2": (5, 10)}.items():
        for step in done:
            tracker.log(stage, step, {"loss": 1.0})
        if stage == "a":
            tracker.finished(10)
    assert steps == [5, 10, 15, 30, 35, 40]
