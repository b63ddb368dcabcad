"""How long a training will take, estimated from a few of its steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from distill.config import Train, Transfer
from distill.data.collate import task_batch
from distill.data.encode import Encoded
from distill.data.task_model import load_for
from distill.data.tasks import TaskData
from distill.losses.terms import bound
from distill.models import families
from distill.models.hooks import outputs_of
from distill.models.student.training import only_used_embeddings, quick_on_cpu
from distill.pipeline.context.folder import RunFolder
from distill.pipeline.runtime import Runtime
from distill.pipeline.train_steps.inputs import MemberInputs
from distill.pipeline.train_steps.prepare import frozen
from distill.pipeline.train_steps.teacher_logits import stored_rows
from distill.pipeline.train_steps.transfer import makes
from distill.runtime.machine import Machine
from distill.runtime.precision import HALVES
from distill.training import batching

WARM, STEPS = 2, 6
"""Steps that are taken before the clock runs, and steps that are timed."""


def seconds(inputs: MemberInputs, settings: Train, runtime: Runtime) -> float:
    """Estimated seconds of a step that trains on tasks, with the labelling of rows by its teacher that is still to be
    done. The models that it starts from must exist.
    """
    return sum(_of_task(inputs, settings, runtime, data) for data in inputs.tasks.values())


def _of_task(inputs: MemberInputs, settings: Train, runtime: Runtime, data: TaskData) -> float:
    task, tokenizer, machine = data.task, inputs.tokenizer, runtime.machine
    encoded = data.encoded(data.train, tokenizer, runtime.longest)
    batches = batching.epoch_batches(encoded.lengths, settings.batch, seed=inputs.seed, epoch=0)
    spaced = np.linspace(0, len(batches) - 1, WARM + STEPS).astype(int)
    timed = [batches[number] for number in np.random.default_rng(0).permutation(spaced)]
    once = inputs.length.steps(settings.batch, inputs.seed, encoded.lengths)
    total = once * len(settings.factors)
    start = inputs.start[task.name]
    # No model is named here, so that the memory of one is free before the next is loaded.
    one = _step_seconds(load_for(task, start, pad_id=tokenizer.pad_token_id), tokenizer, encoded, timed, machine)
    if inputs.teacher is None:
        return total * one
    labeller = inputs.teacher.models
    folder, own = labeller.folder(task.name), labeller.tokenizer
    forward = _teacher_seconds(load_for(task, folder, pad_id=own.pad_token_id), own, encoded, timed, machine)
    if any(term.kind.inside for term in bound(settings.terms).values()):
        return total * (one + forward)
    known = stored_rows(RunFolder(runtime.folder).teacher_logits(labeller.name) / task.name)
    transfer = None if inputs.transfer is None or not makes(task.kind) else inputs.transfer.settings
    return total * one + forward * _labelled(transfer, len(data.train), once, len(batches), known)


def _labelled(transfer: Transfer | None, rows: int, steps: float, per_epoch: int, known: int) -> float:
    """Batches that the teacher labels: the task's rows, and of its transfer set at most what the steps process, without
    the rows that an earlier stage had labelled."""
    extra = 0.0 if transfer is None else min(transfer.times * rows, transfer.most, steps / per_epoch * rows)
    return per_epoch * max(0.0, 1 + (extra - known) / rows)


def _step_seconds(model: Any, tokenizer: Any, encoded: Encoded, batches: list[np.ndarray], machine: Machine) -> float:
    """Seconds of an optimizer step of a model."""
    model = model.to(machine.device).train()
    with only_used_embeddings(model, encoded.ids, [tokenizer.pad_token_id]), quick_on_cpu(model, encoded.lengths):
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-6)
        half = HALVES.get(machine.precision) if families.family_of(model).bf16 else None

        def run(batch: dict[str, Tensor]) -> None:
            with torch.autocast(machine.device.type, half, enabled=half is not None):
                loss = outputs_of(model, batch).float().square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return _median(run, _padded(tokenizer, encoded, batches, machine.device))


def _teacher_seconds(
    model: Any, tokenizer: Any, encoded: Encoded, batches: list[np.ndarray], machine: Machine
) -> float:
    """Seconds in which a teacher labels a batch."""
    model = frozen(model, machine)
    with torch.inference_mode():
        return _median(lambda batch: outputs_of(model, batch), _padded(tokenizer, encoded, batches, machine.device))


def _padded(
    tokenizer: Any, encoded: Encoded, batches: list[np.ndarray], device: torch.device
) -> list[dict[str, Tensor]]:
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
