"""Trainings in rounds, as one process makes them."""

from __future__ import annotations

from typing import Any

from distill.pipeline.train_steps.rounds import Result, Rounds
from distill.runtime.storage import run_folder


def made(rounds: Rounds[Result], runtime: Any) -> Result:
    """What the rounds return, after each part that is not finished."""
    while True:
        try:
            parts = next(rounds)
        except StopIteration as ended:
            result: Result = ended.value
            return result
        for part in parts:
            if not run_folder.finished(runtime.folder / part.folder):
                part.train(runtime)
