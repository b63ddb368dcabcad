"""What is said of the trainings of a model."""

from __future__ import annotations

import pytest

from distill.evaluation.tried import Tried, Try, warnings


def tried(*scores: float | None, seeds: tuple[int, ...] = (), kept: int = 0, chance: float = 50.0) -> Tried:
    seeds = seeds or (0,) * len(scores)
    tries = [
        Try(
            lr=1e-4 * 2**number,
            seed=seed,
            score=score,
            kept=number == kept,
            collapsed=score is not None and score <= chance,
        )
        for number, (score, seed) in enumerate(zip(scores, seeds, strict=True))
    ]
    return Tried(task="a", chance=chance, tries=tries)


@pytest.mark.parametrize(("score", "collapsed"), [(49.9, True), (50.1, False), (None, True)])
def test_the_model_that_is_kept_collapsed_or_there_is_none(score: float | None, collapsed: bool) -> None:
    assert tried(score).collapsed == collapsed


@pytest.mark.parametrize(("kept", "words"), [(0, "0.0001, is the lowest"), (2, "0.0004, is the highest"), (1, "")])
def test_a_rate_at_an_end_of_those_tried_is_named(kept: int, words: str) -> None:
    lines = list(warnings(tried(60.0, 60.0, 60.0, kept=kept)))
    assert [words in line for line in lines] == [True] * bool(words)
    assert not list(warnings(tried(60.0)))


def test_a_collapse_is_named_with_the_number_of_seeds() -> None:
    (line,) = warnings(tried(50.0, 40.0, seeds=(0, 1000)))
    assert line.startswith("the model collapsed with each of 2 seeds: it scores 50.0 on the development rows, and a ")
    (line,) = warnings(tried(50.0, 40.0))
    assert line.startswith("the model collapsed: it scores 50.0")
