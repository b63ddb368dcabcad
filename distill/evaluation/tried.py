"""Records of `results.json` on trainings of which one was kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from distill.evaluation.record import Amount, Count, Number, Record, Text


class Try(Record, frozen=True):
    """A training of a task's model."""

    lr: Amount
    """Its learning rate."""
    seed: Count
    score: Number | None
    """Score of its model on the development rows; None without a model."""
    kept: bool = True
    """Whether its model is the task's."""
    failed: Text = ""
    """Why it made no model."""
    collapsed: bool = False
    """Whether its model is not better than a predictor without any skill: `score` is not above `Tried.chance`, and
    where predictions are classes or labels, nearly all of them are the same."""


class Tried(Record, frozen=True):
    """The trainings of a task's model."""

    task: Text
    chance: Number | None
    """Score, on the development rows, of the best predictor without any skill; None without a model, and where a
    skilled one could not be told from it by so few rows."""
    tries: Annotated[list[Try], Meta(min_length=1)]
    """In order; one of them is kept."""
    member: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    """Which model of an ensemble, counted from 1."""

    @property
    def kept(self) -> Try:
        return next(each for each in self.tries if each.kept)

    @property
    def collapsed(self) -> bool:
        """Whether the model that is kept is not better than a predictor without any skill, or there is none."""
        return self.kept.score is None or self.kept.collapsed


def warnings(tried: Tried) -> Iterator[str]:
    """Sentences on a model that collapsed, and on a learning rate beyond which a better one may lie."""
    kept, rates = tried.kept, sorted({each.lr for each in tried.tries})
    if tried.collapsed:
        seeds = len({each.seed for each in tried.tries})
        times = f" with each of {seeds} seeds" if seeds > 1 else ""
        advice = (
            " (stages.*.retries, of a baseline its student's, trains such a model again with other seeds; with a "
            "budget, set another seed)"
        )
        yield (
            f"the model collapsed{times}: it scores {kept.score:.1f} on the development rows, and a predictor "
            f"without any skill {tried.chance:.1f}{'' if times else advice}"
        )
    elif len(rates) > 1 and kept.lr in (rates[0], rates[-1]):
        end, beyond = ("lowest", "lower") if kept.lr == rates[0] else ("highest", "higher")
        yield (
            f"the learning rate that is kept, {kept.lr:.2g}, is the {end} that was tried, so that a {beyond} one may "
            "be better (stages.*.lr_factors)"
        )
