"""The parts of a training: the model that is trained, the teachers it learns from, and the loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from distill import engine, family, student, teacher
from distill.bind import bind
from distill.compress.gates import parameter_groups
from distill.config import Train
from distill.context import Context
from distill.context.folder import STATE
from distill.objective import BoundTerm, Objective
from distill.plan import Given, Step
from distill.student.training import quick_attention
from distill.terms import KINDS

Arrays = dict[str, np.ndarray]
Collate = Callable[[np.ndarray, int], Arrays]


def prepared(ctx: Context, settings: Train, model: Any) -> Any:
    """The student if the step builds one, with the dropout of the step and what it does not train frozen."""
    if settings.build_student:
        wanted = ctx.config.student
        if wanted.tokenizer is not None:
            own = ctx.given.student_tokenizer
            model = student.with_vocabulary(model, own, student.pieces(own, ctx.given.tokenizer))
        layers = wanted.layers or student.half_depth(model.config.num_hidden_layers)
        sizes = {name: getattr(wanted, name) for name in student.SIZES}
        model = student.from_teacher(
            model, layers, init=wanted.init, seed=ctx.config.seed, kind=wanted.family, sizes=sizes
        )
    if settings.dropout is not None:
        student.set_dropout(model, settings.dropout)
    if settings.data == "corpus" and not uses_head(settings):
        family.freeze_mlm_head(model)
    if settings.only_head:
        family.encoder(model).requires_grad_(False)
    return model.to(ctx.machine.device)


def uses_head(settings: Train) -> bool:
    """Whether a term with a weight is on what the model's head outputs."""
    return any(KINDS[term.features].head and term.weight > 0 for term in settings.terms.values())


def kept_layers(ctx: Context, step: Step, task: str | None) -> list[int] | None:
    """Numbers, among its teacher's, of the layers that a student was built or pruned from.

    None where it has no such layers (drawn at random, given) or where its teacher is a student itself.
    """
    guide, builder, pruner = step.teacher, step.builder, step.pruner
    whole = isinstance(guide, Given) or (guide is not None and not guide.of_student and not guide.pruner)
    copied = ctx.config.student.init == "teacher_layers" and not ctx.plan.given_student
    if not whole or not copied or (builder is None and pruner is None):
        return None
    layers: list[int] | None = None
    if builder is not None:
        depth = int(teacher.read_config(ctx.given.teacher, ctx.given.key).num_hidden_layers)
        layers = list(ctx.config.student.layers or student.half_depth(depth))
    if pruner is not None and pruner is not step:
        parts = ctx.folder.manifest(pruner)["tasks"]
        cut = next(iter(parts.values()))["layers"] if task is None else parts[task]["layers"]
        layers = list(cut) if layers is None else [layers[number] for number in cut]
    return layers


def frozen(ctx: Context, model: nn.Module) -> nn.Module:
    """A teacher: eval mode, no gradients, weights in the precision of training."""
    bf16 = ctx.machine.precision == "bf16" and family.family_of(model).bf16
    dtype = torch.bfloat16 if bf16 else torch.float32
    return model.eval().requires_grad_(False).to(ctx.machine.device, dtype)


def terms(settings: Train) -> dict[str, BoundTerm]:
    """Terms with a weight, their functions bound to their hyper-parameters."""
    return {
        name: BoundTerm(
            t.weight, t.features, t.against, t.positions, bind(t.loss, "loss"), t.layers, t.teacher_layer, t.heads
        )
        for name, t in settings.terms.items()
        if t.weight > 0
    }


def trained(
    ctx: Context, name: str, settings: Train, objective: Objective, lengths: np.ndarray, collate: Collate, seed: int
) -> engine.Trained:
    """Train the student of an objective in place, as the settings want it; `name` is that of its folder."""
    named = [(name, p) for name, p in objective.named_parameters() if p.requires_grad]
    named = [(name, p) for name, p in named if not name.startswith("gates.")]
    # Norms and biases are not decayed, as in BERT.
    groups = [
        {"params": [p for _, p in named if p.ndim > 1]},
        {"params": [p for _, p in named if p.ndim <= 1], "weight_decay": 0.0},
    ]
    if objective.gates is not None:
        groups += parameter_groups(objective.gates, settings.gates.lr)
    with quick_attention(objective.student, lengths):
        return engine.train(
            objective,
            lengths,
            collate,
            name=name,
            settings=settings,
            seed=seed,
            most_steps=ctx.config.limit.steps,
            optimizer=bind(settings.optimizer, "optimizer")(groups),
            schedule=bind(settings.schedule, "schedule"),
            accelerator=ctx.machine.accelerator,
            state_folder=state_folder(ctx, name),
            console=ctx.machine.console,
        )


def state_folder(ctx: Context, name: str) -> Path:
    """Where the resumable state of what is trained under a name is kept."""
    return ctx.folder.path / f"{name}{STATE}"


def summary(done: engine.Trained) -> dict[str, Any]:
    """What a manifest holds of a training."""
    return {
        "steps": done.steps,
        "tokens": done.tokens,
        "seconds": done.seconds,
        "tokens_per_second": done.tokens / max(done.seconds, 1e-9),
        "log": done.log,
    }
