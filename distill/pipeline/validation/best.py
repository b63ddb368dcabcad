"""Checks of `best_of`, with which the best of several moments of a training is kept."""

from __future__ import annotations

from collections.abc import Iterator

from distill.config import Config, Train
from distill.config.plan import SHARED_HEADS, Plan, Step


def best(config: Config, plan: Plan) -> Iterator[str]:
    """Stages that cannot score a model of a task while it is trained."""
    for step in {step.stage: step for step in plan.of(Train)}.values():
        own = isinstance(config.stages.get(step.stage), Train)
        if own and step.settings.best_of > 1 and (wrong := _wrong(config, step)) is not None:
            yield f"stages.{step.stage}.best_of: got {step.settings.best_of}; must be 1 {wrong}; leave it out"


def _wrong(config: Config, step: Step) -> str | None:
    if step.settings.data != "tasks":
        return "in a stage on the corpus, which has no development rows"
    if step.settings.gates.trained:
        return "in a stage with gates, which are open and closed at its end alone"
    if config.student.heads == SHARED_HEADS and step.settings.role != "teacher":
        return f"with student.heads={SHARED_HEADS}, where one encoder is trained on all tasks"
    return None
