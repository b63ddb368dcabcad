"""Checks of a run with a budget, which decides after each target which one is tried next."""

from __future__ import annotations

from collections.abc import Iterator

from distill.config import Config, Evaluate, Prune, Quantize
from distill.config.plan import Plan


def budget(config: Config, plan: Plan) -> Iterator[str]:
    """Problems of a run with `budget.minutes`, which needs speedups as targets, and scores of quantized models."""
    minutes = config.budget.minutes
    if minutes is None:
        return
    got = f"budget.minutes: got {minutes:g}; must be null"
    if not plan.of(Prune) or config.target.speedup is None:
        yield f"{got} in a recipe without target.speedup, whose models are made one by one; use recipe=auto"
        return
    if config.target.latency_ms is not None or config.target.size_mib is not None:
        yield f"{got} with target.latency_ms or target.size_mib; set target.speedup alone"
    evaluates = plan.of(Evaluate)
    if len(evaluates) != 1:
        yield f"{got} in a pipeline with {len(evaluates)} evaluate stages; must have one; use recipe=auto"
        return
    teacher, student = evaluates[0].settings.teacher, evaluates[0].settings.student
    for start in (teacher, student):
        stages = [step.settings for step in plan.of(Quantize) if step.settings.start == start]
        if not stages:
            yield f"{got} in a pipeline without a quantize stage of {start}, whose score decides; use recipe=auto"
        elif all(stage.max_drop is None and stage.max_recall_drop is None for stage in stages):
            yield f"{got} where max_drop is null and nothing is scored; leave stages.*.max_drop out"
    scheme = config.target.scheme
    if scheme in ("fp32", "bf16"):
        yield f"target.scheme: got {scheme}; must be a scheme of stages.*.schemes with budget.minutes; leave it out"
