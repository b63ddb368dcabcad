"""Steps of a plan that several processes train at the same time. Without torch."""

from __future__ import annotations

from distill.config import Train
from distill.config.plan import Plan, Step


def together(plan: Plan, step: Step) -> tuple[Step, ...]:
    """The steps that train at the same time as a step where several processes do, itself among them: the first one in
    the plan, and those after it that use no step which is not before it.

    At most one has a teacher: students of one teacher share its outputs, which the first of them computes.
    """
    done: set[Step] = set()
    for number, first in enumerate(plan.steps):
        if first in done or not _on_tasks(first):
            continue
        found, before = [first], {*plan.steps[:number]}
        for other in plan.steps[number + 1 :]:
            taught = other.teacher is not None and any(each.teacher is not None for each in found)
            if _on_tasks(other) and other not in done and {*other.inputs} <= before and not taught:
                found.append(other)
        done |= {*found}
        if step in found:
            return tuple(found)
    return (step,)


def _on_tasks(step: Step) -> bool:
    """Whether a step trains a student on each task, without gates, whose goal is found for all tasks at once."""
    settings = step.settings
    student = isinstance(settings, Train) and settings.data == "tasks" and settings.role != "teacher"
    return student and not settings.gates.trained
