"""Outputs of teachers for the rows of a task, and the weights of several teachers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import nn

from distill.config.plan import Given, Source, Step
from distill.data.task_model import load_for
from distill.data.task_types import labelled
from distill.data.tasks import TaskData, soft_outputs_of
from distill.data.tokens import identity
from distill.inference.mixture import average, fit
from distill.inference.predict import in_windows, predict, window_logits
from distill.models import families
from distill.pipeline.artefacts import Logits
from distill.pipeline.context import Context
from distill.pipeline.context.fingerprints import of_inputs
from distill.pipeline.context.keys import arithmetic
from distill.pipeline.train_steps.prepare import frozen
from distill.pipeline.train_steps.transfer import makes
from distill.runtime.storage import atomic, checksums, run_folder, store, structs
from distill.training.feed import Arrays

LOGITS = "logits.npy"

CROSS_FITTED = "cross_fitted.npy"
"""File beside a teacher's model with the logits for its training rows, each of a model that was not trained on it."""

APART = 10
"""Every APART-th training row is held out to learn `teacher.weights`."""


def teacher_logits(ctx: Context, source: Source, data: TaskData) -> np.ndarray:
    """Averaged logits [rows, C] of a task's teachers for its training rows, or [windows, 2 W] of their windows.

    They are computed once and stored, because all epochs and all students use the same, and of a transfer set as many
    rows as they need. For the task's own rows, a teacher with folds has the logits of `cross_fitted`.
    """
    task = data.task.name
    name = source.name if isinstance(source, Given) else source.folder
    folder = ctx.folder.teacher_logits(name) / task
    of_student = isinstance(source, Step) and source.of_student
    window = None if of_student else ctx.config.teacher.window
    teachers = [ctx.identity(source), ctx.shares(source, task), window]
    fingerprint = checksums.fingerprint([*teachers, task, data.task.labels, ctx.config.tasks.max_length])

    def waits(end: str) -> None:
        ctx.machine.log(f"{task}: the teacher labels the same rows for another run; waiting for it{end}")

    key = _key(ctx, fingerprint, source, data)
    with ctx.machine.main_first(), store.making("logits", key if ctx.machine.main else None, waits):
        stored = _stored(folder, fingerprint)
        if stored is None and store.take("logits", key, folder):
            stored = _stored(folder, fingerprint)
        before = cross_fitted(ctx, source, task) if stored is None else stored
        rows = data.train if before is None else data.train.select([])
        if before is not None and makes(data.task.kind):  # another stage used fewer rows of the transfer set
            rows = data.train.select(list(range(len(before), len(data.train))))
        parts = [] if before is None else [before]
        if len(rows):
            logits = [
                _logits(ctx, start, ctx.tokenizer(source, member), data, rows, window)
                for member, start in enumerate(ctx.checkpoints(source, task))
            ]
            parts.append(average(logits, ctx.shares(source, task)))
        if len(rows) or stored is None:
            with atomic.writing(folder) as temporary:
                new = parts[0] if len(parts) == 1 else np.concatenate(parts)
                np.save(temporary / LOGITS, new, allow_pickle=False)
                structs.write(temporary / run_folder.MANIFEST, Logits(teachers=fingerprint))
            if isinstance(source, Given):
                ctx.check_unchanged({source.name: ctx.fingerprint(source.name)})
            store.keep("logits", key, folder)
    every = np.load(folder / LOGITS, mmap_mode="r")  # vectors of many rows may not fit into memory
    return every[: len(data.train)] if makes(data.task.kind) else every


def _key(ctx: Context, teachers: str, source: Source, data: TaskData) -> str | None:
    """Name in the cache of what teachers output for a task's training rows: a hash of all that changes an output.

    Args:
        teachers: fingerprint of the teachers, their windows and lengths.
    """
    if ctx.config.limit.smoke:
        return None
    members = range(len(ctx.checkpoints(source, data.task.name)))
    tokens = [identity(ctx.tokenizer(source, member)) for member in members]
    return checksums.fingerprint([teachers, of_inputs(data), tokens, arithmetic(ctx.machine)])


def _stored(folder: Path, fingerprint: str) -> np.ndarray | None:
    """The logits in a folder; None without logits of this teacher."""
    if not folder.is_dir() or structs.read(folder / run_folder.MANIFEST, Logits).teachers != fingerprint:
        return None
    stored: np.ndarray = np.load(folder / LOGITS, mmap_mode="r")
    return stored


def cross_fitted(ctx: Context, source: Source, task: str) -> np.ndarray | None:
    """Logits [rows, C] for the task's own training rows, each of a model that was not trained on the row. None for a
    teacher that was trained without folds."""
    if not isinstance(source, Step) or not (file := ctx.folder.of(source) / task / CROSS_FITTED).is_file():
        return None
    logits: np.ndarray = np.load(file, mmap_mode="r")
    return logits


def learned_outputs(ctx: Context, source: Source, data: TaskData) -> np.ndarray:
    """Outputs [rows, C] from which a student learns, for the training rows of a task: the soft label of a row or, for
    rows without one, the teachers' logits from `teacher_logits`."""
    soft = soft_outputs_of(data.train)
    if soft is None:
        return teacher_logits(ctx, source, data)
    missing = np.isnan(soft).any(axis=1)
    if not missing.any():
        return soft
    return np.where(missing[:, None], teacher_logits(ctx, source, data), soft)


def held_out(ctx: Context, data: TaskData) -> tuple[Dataset, Dataset]:
    """Training rows for fine-tuning teachers, and the rows that are held out to learn the teachers' weights."""
    if ctx.config.teacher.weights != "learned":
        return data.train, data.train.select([])
    is_held_out = np.arange(len(data.train)) % APART == APART - 1
    return data.train.select(np.flatnonzero(~is_held_out)), data.train.select(np.flatnonzero(is_held_out))


def learned_weights(ctx: Context, folders: list[Path], data: TaskData) -> list[float]:
    """Weights of the teachers whose models are in `folders`, with the least loss on the held-out rows."""
    _, rows = held_out(ctx, data)
    rows = rows.select(np.flatnonzero(labelled(np.asarray(rows["label"]))))
    window = ctx.config.teacher.window
    logits = [_logits(ctx, f, t, data, rows, window) for f, t in zip(folders, ctx.given.tokenizers, strict=True)]
    return fit(logits, np.asarray(rows["label"]))


def _logits(
    ctx: Context, folder: Path, tokenizer: Any, data: TaskData, rows: Dataset, window: int | None
) -> np.ndarray:
    """Logits [rows, C] of one teacher, with its own tokenizer; of windows of `window` tokens unless it is None."""
    model = load_for(data.task, folder, pad_id=tokenizer.pad_token_id)
    return logits_of(ctx, model, tokenizer, data, rows, window)


def logits_of(
    ctx: Context, model: nn.Module, tokenizer: Any, data: TaskData, rows: Dataset, window: int | None
) -> np.ndarray:
    """Logits [rows, C] of a loaded teacher, which is frozen, as from `_logits`; of questions [windows, 2 W]."""
    model = frozen(ctx, model)
    encoded = data.encoded(rows, tokenizer, ctx.config.tasks.max_length)
    if encoded.spans is not None:
        return window_logits(running(ctx, model), encoded, pad_id=tokenizer.pad_token_id)
    run = in_windows(running(ctx, model), tokenizer, window)
    return predict(run, encoded, pad_id=tokenizer.pad_token_id, left=tokenizer.padding_side == "left")


def running(ctx: Context, model: nn.Module) -> Callable[[Arrays], np.ndarray]:
    """A function from a batch to the model's logits [B, C]."""

    def logits(batch: Arrays) -> np.ndarray:
        with torch.no_grad():
            tensors = {key: torch.from_numpy(value).to(ctx.machine.device) for key, value in batch.items()}
            result: np.ndarray = families.logits(model, tensors).float().cpu().numpy()
        return result

    return logits
