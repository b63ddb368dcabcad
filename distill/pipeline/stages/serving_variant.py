"""The form in which pruned models will serve, and the inputs that it is timed with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from distill.config import Quantize
from distill.config.schemes import SCHEMES
from distill.data.encode import Encoded
from distill.deploy.export import untrained
from distill.deploy.export.untrained import TORCH, VOCABULARY, Form
from distill.inference import latency, timing
from distill.inference.runners import Batch, Runner
from distill.pipeline.context import Context

SAMPLE = 64
"""Rows of each task whose lengths are timed."""


def form_of(ctx: Context) -> Form:
    """The form of the target: `target.scheme`, or the form in which this machine serves fastest."""
    goal = ctx.config.target
    if goal.speedup is None and goal.latency_ms is None and goal.scheme is None:
        return TORCH  # times then only decide between shapes of equal loss
    made = (SCHEMES[name] for step in ctx.plan.of(Quantize) for name in step.settings.schemes)
    cuda = ctx.machine.device.type == "cuda"
    ranks = {scheme.cpu_rank: scheme.name for scheme in made if scheme.cpu_rank is not None and not cuda}
    wanted = goal.scheme or (ranks[min(ranks)] if ranks else None)
    if wanted in SCHEMES:
        return Form(SCHEMES[wanted].backend, SCHEMES[wanted].scheme, wanted)
    half = cuda and ctx.machine.precision == "bf16" and wanted is None
    return Form("torch", wanted or ("bf16" if half else "fp32"))


def runner(ctx: Context, name: str, form: Form, config: Any) -> Runner:
    """A model of a config in a form, with random weights."""
    return untrained.runner(name, form, config, device=str(ctx.machine.device), threads=ctx.machine.threads)


def batches(ctx: Context) -> list[Batch]:
    """Random tokens of `target.shape`; or with `own`, of the lengths of the tasks' texts, in batches of up to eight
    texts, or of one if the target is a latency."""
    shape = ctx.config.target.shape
    if shape != timing.OWN:
        return [latency.synthetic((shape[0], shape[1]), VOCABULARY)]
    tokenizer, tasks = ctx.given.tokenizer, list(_sampled(ctx))
    if ctx.config.target.latency_ms is None:
        drawn = timing.task_batches(tasks, tokenizer)
    else:
        drawn = timing.task_requests(tasks, tokenizer, timing.TASK_ROWS)
    random = np.random.default_rng(0)
    return [batch | {"input_ids": random.integers(5, VOCABULARY, batch["input_ids"].shape)} for batch in drawn]


def _sampled(ctx: Context) -> Iterator[tuple[int, Encoded]]:
    """Number of text columns and some training rows of each task, encoded."""
    for data in ctx.tasks.values():
        count = min(SAMPLE, len(data.train))
        rows = data.train.select(np.random.default_rng(0).permutation(len(data.train))[:count])
        yield data.texts, data.encoded(rows, ctx.given.tokenizer, ctx.config.tasks.max_length).sequences
