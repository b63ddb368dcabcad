"""The best of several moments of a training is kept, also where the training was stopped in between."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from distill.pipeline.artefacts import Moment
from distill.pipeline.train_steps.best import Best, moments
from distill.runtime.storage import run_folder


class Scripted(nn.Module):
    """A model whose only weight is the number of its step, and whose score at each step is given."""

    def __init__(self, scores: dict[int, float]) -> None:
        super().__init__()
        self.step, self.scores = nn.Parameter(torch.zeros(1)), scores

    def score(self) -> float:
        return self.scores[int(self.step)]


SCORES = {6: 40.0, 7: 70.0, 8: 60.0, 9: 70.0, 10: 50.0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run_folder.claim(tmp_path)
    return tmp_path / "finetune" / "a.state" / "best"


def trained(model: Scripted, folder: Path, steps: range, **settings: Any) -> Best:
    best = Best(model, frozenset(SCORES), model.score, folder, [], **settings)
    for step in steps:
        with torch.no_grad():
            model.step.fill_(step)
        best.after_step(step)
    return best


@pytest.mark.parametrize(("total", "count"), [(10, 5), (1000, 3), (7, 2), (1, 4), (3, 3)])
def test_moments_are_in_the_second_half_and_the_last_is_the_end(total: int, count: int) -> None:
    found = sorted(moments(total, count))
    assert found[-1] == total
    assert len(found) == min(count, (total + 1) // 2)
    assert all(total / 2 <= moment for moment in found)


@pytest.mark.parametrize("bad", [set(SCORES), {6, 7, 10}])
def test_a_moment_whose_outputs_are_not_finite_is_not_kept(bad: set[int], folder: Path) -> None:
    model = Scripted({step: math.nan if step in bad else score for step, score in SCORES.items()})
    lines: list[str] = []
    found = trained(model, folder, range(1, 11)).restore(lines.append)
    assert found == (None if len(bad) == len(SCORES) else Moment(step=9, score=70.0))
    assert int(model.step) == (10 if found is None else 9)
    assert ("at no moment" in lines[0]) == (found is None)


def test_the_weights_of_the_best_moment_are_restored_and_of_equal_ones_the_later(folder: Path) -> None:
    model = Scripted(SCORES)
    lines: list[str] = []
    found = trained(model, folder, range(1, 11)).restore(lines.append)
    assert found == Moment(step=9, score=70.0, score_at_end=50.0)
    assert int(model.step) == 9
    assert lines == [
        "the model after 9 of 10 steps is kept, which scores 70.0 on the development rows; 50.0 at the end"
    ]


@pytest.mark.parametrize(("resume", "stop"), [(5, 6), (5, 8), (7, 8), (7, 10), (8, 9), (8, 10)])
def test_a_training_that_resumes_keeps_the_same_moment(folder: Path, resume: int, stop: int) -> None:
    """It resumes at a state from before it was stopped, and may score a moment twice."""
    trained(Scripted(SCORES), folder, range(1, stop))
    model = Scripted(SCORES)
    found = trained(model, folder, range(resume, 11)).restore(lambda text: None)
    assert found is not None
    assert found.step == int(model.step) == 9


def test_a_training_that_goes_on_at_its_end_has_the_score_at_the_end(folder: Path) -> None:
    """It was stopped while the last moment was scored: after that, its state is written before it ends."""
    trained(Scripted(SCORES), folder, range(1, 11))
    model = Scripted(SCORES)
    with torch.no_grad():
        model.step.fill_(10)  # as the state has it
    lines: list[str] = []
    assert trained(model, folder, range(0)).restore(lines.append) == Moment(step=9, score=70.0, score_at_end=50.0)
    assert int(model.step) == 9
    assert lines[0].endswith("; 50.0 at the end")


def test_one_process_scores_and_the_others_keep_what_they_have(folder: Path) -> None:
    model = Scripted({})
    best = trained(model, folder, range(1, 11), main=False)
    assert best.restore(lambda text: None) is None
    assert int(model.step) == 10
    assert not folder.exists()


def test_every_process_waits_until_a_moment_is_scored(folder: Path) -> None:
    """In the next step the others would wait for no longer than 30 minutes."""
    model, waited = Scripted(SCORES), list[int]()

    def wait() -> None:
        waited.append(int(model.step))

    trained(model, folder, range(1, 11), main=False, wait=wait)
    assert waited == sorted(SCORES)
    assert not folder.exists()

    def wait_for_the_score() -> None:
        assert best.last == SCORES[6]
        waited.append(0)

    best = Best(model, frozenset([6]), lambda: SCORES[6], folder, [], wait=wait_for_the_score)
    best.after_step(6)
    assert waited[-1] == 0
