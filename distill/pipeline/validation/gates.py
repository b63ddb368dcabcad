"""Checks of stages that train gates, which a prune stage then prunes by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from distill.config import Config, Prune, Train
from distill.config.plan import Plan
from distill.pipeline.validation.rules import only
from distill.runtime import quoting


def gates(config: Config, plan: Plan) -> Iterator[str]:
    """Settings that do not fit a stage that trains gates."""
    for stage, step in {step.stage: step for step in plan.of(Train) if step.settings.gates.trained}.items():
        settings: Train = step.settings
        got = f"stages.{stage}.gates.kind: got {settings.gates.kind}; must be none"
        if settings.data != "tasks":
            yield f"{got} on a corpus; train gates on tasks"
            continue
        pruners = [other for other in plan.of(Prune) if other.gated is step]
        if not pruners:
            start = quoting.setting("stages.PRUNE.start", stage)
            yield f"{got} in a stage that no prune stage starts from; leave it out, or set {start}"
        if settings.role == "teacher" or settings.build_student:
            yield f"{got} in a stage that trains a teacher or builds a student; leave it out"
        if config.target.chain or config.budget.minutes is not None:
            yield f"{got} with target.chain or budget.minutes, where models are not pruned by gates; leave them out"
        if config.student.layers is not None and settings.gates.kind == "l0":
            yield f"{got} with student.layers, because gates choose the layers; set student.num_hidden_layers instead"
        if config.target.size_mib is not None and any(other.start is not step for other in pruners):
            yield f"{got} before a vocabulary stage with target.size_mib; let that stage run first"
        yield from _pruning({pruner.stage: pruner.settings for pruner in pruners})
        for other in plan.of(Train):
            if other.source("shape_of") in pruners:
                key = f"stages.{other.stage}.shape_of"
                yield f"{key}: got {other.settings.shape_of}, which prunes by gates; must prune without; leave it out"


def _pruning(stages: Mapping[str, Prune]) -> Iterator[str]:
    """Settings of prune stages that do not fit gates: a gated model equals the pruned one only at its final shape."""
    for stage, settings in stages.items():
        for name, value in (("uniform", True), ("finalists", 1), ("refit", False)):
            found = {f"stages.{stage}.{name}": getattr(settings, name)}
            yield from only(value, found, "where gates are trained", "leave it out")
