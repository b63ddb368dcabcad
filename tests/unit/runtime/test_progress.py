"""What is shown of long work on a terminal, in a file, and nowhere."""

from __future__ import annotations

import io
import threading
from typing import Any

import pytest
from rich.console import Console

from distill.inference import latency
from distill.inference.runners import Runner
from distill.runtime import progress


def console(terminal: bool) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, force_terminal=terminal, width=100), file


def work() -> None:
    with progress.counted("outer", 4) as done:
        for _ in range(2):
            with progress.counted("inner", 1) as inner, progress.waiting("waits"):
                inner(1)
            done(2)


@pytest.mark.parametrize("terminal", [True, False])
def test_the_outermost_work_is_shown_with_its_time_left(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    to, file = console(terminal)
    with progress.shown_on(to):
        work()
    work()  # outside, it shows nothing more
    text = file.getvalue()
    assert "outer" in text
    assert "4/4" in text
    assert "inner" not in text
    assert "waits" not in text
    if not terminal:
        assert text == "outer: step 2/4, 0 s left\nouter: step 4/4, 0 s left\n"


def test_what_cannot_be_counted_is_named_on_a_terminal_alone() -> None:
    shown = []
    for terminal in (True, False):
        to, file = console(terminal)
        with progress.shown_on(to), progress.waiting("exporting"):
            pass
        shown.append("exporting" in file.getvalue())
    assert shown == [True, False]


def test_no_thread_draws_beside_what_is_timed() -> None:
    to, _ = console(True)
    before = threading.active_count()
    with progress.shown_on(to), progress.counted("timing", 4) as done:
        done(1)
        assert threading.active_count() == before


def test_an_error_ends_the_display() -> None:
    to, _ = console(True)
    with progress.shown_on(to):
        for _ in range(2):  # a bar that remained would refuse the next one
            with pytest.raises(ValueError, match="broken"), progress.counted("outer", 4):
                raise ValueError("broken")


def test_every_timing_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    to, file = console(False)

    def run(batch: Any) -> Any:
        return batch["input_ids"]

    runners = [Runner(name, "torch", "fp32", run) for name in "ab"]
    with progress.shown_on(to):
        latency.measure(runners, [latency.synthetic((1, 4), 100)], repeats=3, least_ms=0.1)
    assert "timing: step 10/10, 0 s left" in file.getvalue()  # 2 runners, 2 rounds that do not count and 3 that do


def test_a_live_bar_says_of_what_it_is_a_part() -> None:
    to, file = console(True)
    with progress.shown_on(to), progress.within(lambda _: "step 2 of 7"), progress.counted("timing", 4) as done:
        done(4)
    assert "[step 2 of 7] timing" in file.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (89.4, "89 s"), (90, "2 min"), (3000, "50 min"), (5400, "1 h 30 min"), (86_400, "24 h 0 min")],
)
def test_a_duration_is_as_exact_as_an_estimate(seconds: float, text: str) -> None:
    assert progress.duration(seconds) == text
