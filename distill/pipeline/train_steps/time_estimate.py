"""How long a training will take, estimated from a few of its steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from distill.compression.pruning.sensitivity import autocast
from distill.config import Train
from distill.config.plan import Source, Step
from distill.data.collate import task_batch
from distill.data.encode import Encoded
from distill.data.task_model import load_for
from distill.data.tasks import TaskData
from distill.losses.terms import bound
from distill.models.hooks import outputs_of
from distill.models.student.training import only_used_embeddings, quick_on_cpu
from distill.pipeline.context import Context
from distill.pipeline.train_steps.prepare import frozen, total_steps
from distill.pipeline.train_steps.transfer import makes
from distill.training import batching

WARM, STEPS = 2, 6
"""Steps that are taken before the clock runs, and steps that are timed."""


def seconds(ctx: Context, step: Step) -> float:
    """Estimated seconds of a step that trains on tasks, with the labelling of rows by its teacher that is still to be
    done. The models that it starts from must exist.
    """
    return sum(_of_task(ctx, step, data) for data in ctx.tasks.values())


def _of_task(ctx: Context, step: Step, data: TaskData) -> float:
    settings: Train = step.settings
    tokenizer = ctx.tokenizer(step)
    encoded = data.encoded(data.train, tokenizer, ctx.config.tasks.max_length)
    batches = batching.epoch_batches(encoded.lengths, settings.batch, seed=ctx.config.seed, epoch=0)
    spaced = np.linspace(0, len(batches) - 1, WARM + STEPS).astype(int)
    timed = [batches[number] for number in np.random.default_rng(0).permutation(spaced)]
    total = total_steps(ctx, step, encoded.lengths)
    one = _step_seconds(ctx, step, data, encoded, timed)
    if step.teacher is None:
        return total * one
    forward = _teacher_seconds(ctx, step.teacher, data, encoded, timed)
    if any(term.kind.inside for term in bound(settings.terms).values()):
        return total * (one + forward)
    name = step.teacher.folder if isinstance(step.teacher, Step) else step.teacher.name
    labelled = (ctx.folder.teacher_logits(name) / data.task.name).is_dir()
    return total * one + (0.0 if labelled else forward * _labelled(ctx, settings, data, total, len(batches)))


def _labelled(ctx: Context, settings: Train, data: TaskData, steps: float, per_epoch: int) -> float:
    """Batches that the teacher labels: the task's rows, and of its transfer set at most what the steps process."""
    transfer, rows = ctx.config.transfer, len(data.train)
    extra = min(transfer.times * rows, transfer.most, steps / per_epoch * rows) if settings.transfer else 0.0
    return per_epoch * (1 + (extra / rows if makes(data.task.kind) else 0.0))


def _step_seconds(ctx: Context, step: Step, data: TaskData, encoded: Encoded, batches: list[np.ndarray]) -> float:
    """Seconds of an optimizer step of the model that a step starts from."""
    tokenizer, device = ctx.tokenizer(step), ctx.machine.device
    folder = ctx.checkpoint(step.start, data.task.name)
    model = load_for(data.task, folder, pad_id=tokenizer.pad_token_id).to(device).train()
    with only_used_embeddings(model, encoded.ids, [tokenizer.pad_token_id]), quick_on_cpu(model, encoded.lengths):
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-6)

        def run(batch: dict[str, Tensor]) -> None:
            with autocast(model, ctx.machine.precision):
                loss = outputs_of(model, batch).float().square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return _median(run, _padded(ctx, step, encoded, batches))


def _teacher_seconds(
    ctx: Context, source: Source, data: TaskData, encoded: Encoded, batches: list[np.ndarray]
) -> float:
    """Seconds in which a teacher labels a batch."""
    folder = ctx.checkpoint(source, data.task.name)
    model = frozen(ctx, load_for(data.task, folder, pad_id=ctx.tokenizer(source).pad_token_id))
    with torch.inference_mode():
        return _median(lambda batch: outputs_of(model, batch), _padded(ctx, source, encoded, batches))


def _padded(ctx: Context, source: Source, encoded: Encoded, batches: list[np.ndarray]) -> list[dict[str, Tensor]]:
    tokenizer, device = ctx.tokenizer(source), ctx.machine.device
    arrays = [task_batch(encoded, rows, tokenizer.pad_token_id, tokenizer.padding_side == "left") for rows in batches]
    return [{key: torch.from_numpy(value).to(device) for key, value in batch.items()} for batch, _ in arrays]


def _median(run: Callable[[dict[str, Tensor]], Any], batches: list[dict[str, Tensor]]) -> float:
    """Median seconds of a batch, of those after the first `WARM`."""
    took = []
    for batch in batches:
        began = time.perf_counter()
        run(batch)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        took.append(time.perf_counter() - began)
    return median(took[WARM:])
