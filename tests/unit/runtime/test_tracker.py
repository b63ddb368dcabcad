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
