"""The search for the shape of a prune step's models, and what else depends on the times of shapes on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from distill.compression.pruning.goal import Goal
from distill.compression.pruning.search import Choice, evenness
from distill.compression.pruning.target import (
    KNOTS,
    PARTS,
    SMOKE_KNOTS,
    SMOKE_PARTS,
    Search,
    candidates,
    requested_shape,
    shape_of,
)
from distill.compression.pruning.times import timer
from distill.config import Prune, Quantize
from distill.config.plan import Step
from distill.data.encode import Encoded
from distill.deploy.export import untrained
from distill.deploy.export.untrained import Form
from distill.inference import latency, timing
from distill.inference.runners import Batch
from distill.models import teacher
from distill.pipeline.context import Context
from distill.pipeline.context.folder import CHOICE
from distill.runtime.storage import run_folder, structs
from distill.runtime.versions import processor

SAMPLE = 64
"""Rows of each task whose lengths are timed."""


def form_of(ctx: Context) -> Form:
    """The form of the target: `target.scheme`, or the form in which this machine serves fastest."""
    made = (name for step in ctx.plan.of(Quantize) for name in step.settings.schemes)
    cuda = ctx.machine.device.type == "cuda"
    return untrained.form_of(ctx.config.target, made, cuda=cuda, bf16=cuda and ctx.machine.precision == "bf16")


def batches(ctx: Context) -> list[Batch]:
    """Random tokens of `target.shape`; or with `own`, of the lengths of the tasks' texts, in batches of up to eight
    texts, or of one if the target is a latency."""
    shape = ctx.config.target.shape
    if shape != timing.OWN:
        return [latency.synthetic((shape[0], shape[1]), untrained.VOCABULARY)]
    tokenizer, tasks = ctx.given.tokenizer, list(_sampled(ctx))
    if ctx.config.target.latency_ms is None:
        return untrained.random_tokens(timing.task_batches(tasks, tokenizer))
    return untrained.random_tokens(timing.task_requests(tasks, tokenizer, timing.TASK_ROWS))


def _sampled(ctx: Context) -> Iterator[tuple[int, Encoded]]:
    """Number of text columns and some training rows of each task, encoded."""
    for data in ctx.tasks.values():
        count = min(SAMPLE, len(data.train))
        rows = data.train.select(np.random.default_rng(0).permutation(len(data.train))[:count])
        yield data.texts, data.encoded(rows, ctx.given.tokenizer, ctx.config.tasks.max_length).sequences


def search_of(ctx: Context, step: Step, whole: Any, start: Any = None) -> Search:
    """The search for the shape of a step.

    Args:
        whole: config of the unpruned models.
        start: config of the models that the step prunes, where these were pruned before; `whole` when None.
    """
    limit, machine, form, config = ctx.config.limit, ctx.machine, form_of(ctx), start or whole
    inputs: list[Batch] = []
    if ctx.plan.has_target:  # of the sizes that the unpruned models may be cut to, so that they are timed once for all
        parts = SMOKE_PARTS if limit.smoke else PARTS
        every = candidates(whole, step.settings.dimensions, parts)
        shapes = [shape for shape in every if shape.within(shape_of(config))]
        inputs = batches(ctx)
    else:
        shapes = [requested_shape(config, ctx.config.student)]

    def log(text: str) -> None:
        machine.log(f"{step.stage}: {text}")

    times = timer(
        inputs,
        timing.TASK_ROWS if ctx.config.target.shape == timing.OWN else 1,
        repeats=min(untrained.REPEATS, limit.repeats or untrained.REPEATS),
        least_ms=latency.SMOKE_MS if limit.smoke else latency.LEAST_MS,
        log=log,
    )
    sizes = [batch["attention_mask"].sum(1).tolist() for batch in inputs]
    return untrained.search_in(
        form,
        config,
        shapes,
        times,
        lambda: teacher.read_config(ctx.given.teacher),
        device=machine.device.type,
        threads=machine.threads,
        folder=ctx.folder.times(step),
        log=lambda text: log(f"{text}, {form.backend} {form.scheme}"),
        conditions={"inputs": sizes, "processor": processor(machine)},
        checked=not limit.smoke,
        knots=SMOKE_KNOTS if limit.smoke else KNOTS,
    )


def check_reach(ctx: Context, step: Step, config: Any) -> None:
    """Raise ConfigError for a target that no model pruned from one of this config can meet on this machine."""
    if ctx.config.limit.smoke or not ctx.plan.has_target or shape_file(ctx, step).is_file():
        return
    with timed(ctx, step):
        # Sizes cannot be checked before a vocabulary stage has run, which reduces them.
        search_of(ctx, step, config).check(step.goal, sized=not isinstance(step.tokenizer, Step))


def goal_of_gates(ctx: Context, step: Step) -> Goal:
    """The goal to which a train step trains its gates: the target, or the sizes, of the prune step that prunes by them.

    Movement gates need a shape before they are trained: the shape that meets the target by the most even scaling of the
    model. It is stored, so that a stopped run resumes.
    """
    pruner = next(other for other in ctx.plan.of(Prune) if other.gated is step)
    search = search_of(ctx, pruner, teacher.read_config(ctx.checkpoint(step.start, next(iter(ctx.tasks)))))
    if not ctx.plan.has_target:
        return Goal(search.shapes)
    file = ctx.folder.of(step) / CHOICE
    # The other processes read what the main process measured and chose.
    with ctx.machine.main_first(), timed(ctx, pruner) if ctx.machine.main else nullcontext():
        if step.settings.gates.kind == "l0":
            return search.goal(step.goal)
        if not file.is_file():
            structs.write(file, search.choice(step.goal, evenness(search.full)))
    choice = structs.read(file, Choice)
    return Goal([choice.shape], choice=choice)


def shape_file(ctx: Context, step: Step) -> Path:
    """File of the shape that was chosen for a step's target."""
    return ctx.folder.measured(step) / f"shape{step.target}.json"


def seconds_file(ctx: Context, step: Step) -> Path:
    """File of the seconds that a step took so far."""
    return ctx.folder.measured(step) / f"seconds{step.target}.json"


@contextmanager
def timed(ctx: Context, step: Step) -> Iterator[None]:
    """Add the seconds of the block to the stored seconds of the step, which include stopped runs."""
    file, began = seconds_file(ctx, step), time.monotonic()
    before = run_folder.read_json(file) if file.is_file() else 0.0
    try:
        yield
    finally:
        run_folder.write_json(file, before + time.monotonic() - began)
