"""Checks of `folds`, with which a teacher's training rows are labelled by models that were not trained on them."""

from __future__ import annotations

from collections.abc import Iterator

from distill.config import NO_TEACHER, Config, Train
from distill.config.plan import Plan, Step
from distill.runtime import quoting


def folds(config: Config, plan: Plan) -> Iterator[str]:
    """Stages with folds that train no teacher, or one whose outputs no student learns."""
    for step in {step.stage: step for step in plan.of(Train)}.values():
        if step.settings.folds > 1 and (wrong := _wrong(config, plan, step)) is not None:
            yield f"stages.{step.stage}.folds: got {step.settings.folds}; must be 1 {wrong}"


def _wrong(config: Config, plan: Plan, step: Step) -> str | None:
    """Why a stage cannot have folds, and what to do."""
    settings = step.settings
    if settings.role != "teacher" or settings.data != "tasks":
        return "in a stage that fine-tunes no teacher on tasks; set it in the stage that does"
    if config.teacher.kind == "ensemble":
        return "with teacher=ensemble; give one teacher, or leave it out"
    if config.teacher.kind == NO_TEACHER:
        return "with teacher=none, where a student learns from soft labels; leave it out"
    if settings.teacher is not None:
        return f"in a stage with a teacher of its own; leave it out, or set stages.{step.stage}.teacher=null"
    if not any(other.teacher is step for other in plan.of(Train)):
        other = quoting.setting("stages.STAGE.teacher", step.stage)
        return f"where no stage has {step.stage} as its teacher; leave it out, or set {other}"
    return None
