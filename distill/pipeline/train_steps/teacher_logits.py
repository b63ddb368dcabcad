"""Outputs of teachers for the rows of a task, and the weights of several teachers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import nn

from distill.data.encode import Encoded
from distill.data.members import read_by
from distill.data.soft_labels import aligned
from distill.data.task_model import load_for
from distill.data.task_types import labelled
from distill.data.task_types.answers import narrowed
from distill.data.task_types.layout import SECONDS
from distill.data.tasks import TaskData, soft_outputs_of, targets_of
from distill.data.tokens import identity
from distill.errors import UserError
from distill.inference.mixture import fit, mixed
from distill.inference.predict import in_windows, predict, window_logits
from distill.models import families
from distill.models.families.record import ABSENT
from distill.pipeline.artefacts import Logits
from distill.pipeline.context.checkpoints import Checkpoints
from distill.pipeline.context.fingerprints import of_inputs, of_models
from distill.pipeline.context.folder import RunFolder
from distill.pipeline.context.keys import arithmetic
from distill.pipeline.runtime import Runtime
from distill.pipeline.train_steps.prepare import frozen
from distill.runtime.machine import Machine
from distill.runtime.storage import atomic, checksums, file_hashes, run_folder, store, structs
from distill.training.feed import Arrays

LOGITS = "logits.npy"

ROWS = "rows.npy"
"""File beside the logits with the hash of each training row that they are for."""

_AT_ONCE = 10_000

CROSS_FITTED = "cross_fitted.npy"
"""File beside a teacher's model with the logits for its training rows, each of a model that was not trained on it."""

APART = 10
"""Every APART-th training row is held out to learn `teacher.weights`."""


@dataclass(frozen=True)
class Labeller:
    """A teacher that labels the training rows of tasks."""

    models: Checkpoints
    window: int | None
    """Number of tokens that it reads at once; None for whole texts."""
    cross_fitted: Mapping[str, Path]
    """Task -> file with the logits for its training rows, each of a model that was not trained on the row. Empty for a
    teacher that was trained without folds."""
    check: Callable[[], None]
    """Raises UserError if files of a given teacher changed in the course of the run."""
    soft_first: bool = True
    """Whether a row's soft label, which is of another teacher, takes the place of the outputs."""


def teacher_logits(teacher: Labeller, data: TaskData, runtime: Runtime) -> np.ndarray:
    """Logits [rows, C] of a task's teachers as one, from `mixed`, for its training rows, [words, C] of their words, or
    [windows, 2 W] of their windows, of which there may be more.

    They are computed once and stored, because all epochs and all students use the same, and of a transfer set as many
    rows as they need: a stage that needs more rows has only these labelled. For the task's own rows, a teacher with
    folds has the logits of `cross_fitted`.

    Raises:
        UserError: files of a given teacher changed.
    """
    task, models, machine = data.task.name, teacher.models, runtime.machine
    folder, weights = RunFolder(runtime.folder).teacher_logits(models.name) / task, models.weights[task]
    fingerprint = _fingerprint(teacher, data, runtime) if machine.main else ""

    def waits(end: str) -> None:
        machine.log(f"{task}: the teacher labels the same rows for another run; waiting for it{end}")

    count, hashes = len(data.train), row_hashes(data)

    def label(folder: Path) -> None:
        stored = _stored(folder, fingerprint, hashes)
        before = cross_fitted(teacher, task) if stored is None else np.load(folder / LOGITS, mmap_mode="r")
        known = stored if stored is not None else 0 if before is None else len(before)
        rows = data.train.select(list(range(known, count))) if known else data.train
        parts = [] if before is None else [before]
        if len(rows):
            logits = [
                _logits(model, tokenizer, read_by(data, number), rows, teacher.window, runtime)
                for number, (model, tokenizer) in enumerate(zip(models.folders[task], models.tokenizers, strict=True))
            ]
            parts.append(_finite(task, mixed(data.task.kind, logits, weights)))
        with atomic.writing(folder) as temporary:
            np.save(temporary / LOGITS, _joined(parts, data.task.kind.extractive), allow_pickle=False)
            np.save(temporary / ROWS, hashes, allow_pickle=False)
            structs.write(temporary / run_folder.MANIFEST, Logits(teachers=fingerprint))
        teacher.check()

    # With the name of a file that entries of older versions lack.
    key = None if runtime.limit.smoke else checksums.fingerprint([fingerprint, of_inputs(data), ROWS])
    with machine.main_first():
        stored = _stored(folder, fingerprint, hashes)
        if machine.main and (stored is None or stored < count):
            store.get_or_make("logits", key, label, folder, waits)
    every = np.load(folder / LOGITS, mmap_mode="r")  # vectors of many rows may not fit into memory
    return _of_rows(every, data)


def _fingerprint(teacher: Labeller, data: TaskData, runtime: Runtime) -> str:
    """Hash of all but the rows that changes the outputs of a task's teachers.

    Of the teachers their files count, and not how they were made: a given model that is used as it is has the same
    outputs in runs with other seeds, settings of training or development rows.
    """
    task, models, folds = data.task, teacher.models, teacher.cross_fitted.get(data.task.name)
    files = [of_models(map(str, models.folders[task.name])), None if folds is None else file_hashes.sha256(folds)]
    # Logits of words by an older version have zeros behind the first `longest` tokens of a text.
    read: list[Any] = ["windows of words"] if task.kind.per_token else []
    read += [task.prompts, task.member_prompts] if task.prompts or task.member_prompts else []
    # A run may go on with other code or in another arithmetic. Outputs that it made earlier must not count as made now.
    read += [[identity(tokenizer) for tokenizer in models.tokenizers], arithmetic(runtime.machine)]
    return checksums.fingerprint(
        [files, models.weights[task.name], teacher.window, task.labels, runtime.longest, *read]
    )


def _finite(task: str, logits: np.ndarray) -> np.ndarray:
    """The logits [n, C] of a teacher. Raises UserError if some are not finite, such as numbers too large for fp16."""
    wrong = ~np.isfinite(logits).all(axis=1)
    if wrong.any():
        raise UserError(
            f"{task}: got outputs of the teacher that are not finite for {wrong.sum():,} of {len(wrong):,} rows; must "
            "be finite; set precision=fp32, or give another teacher"
        )
    return logits


def row_hashes(data: TaskData) -> np.ndarray:
    """[rows] hash of what a teacher reads of each training row."""
    columns = [*data.task.columns, *data.task.kind.layout.hidden]
    parts = data.train.select_columns(columns).with_format("arrow").iter(_AT_ONCE)
    rows = (repr(row).encode("utf-8", "surrogatepass") for part in parts for row in part.to_pylist())
    digests = (hashlib.blake2b(row, digest_size=8).digest() for row in rows)
    return np.fromiter((int.from_bytes(digest, "little") for digest in digests), np.uint64, len(data.train))


def stored_rows(folder: Path) -> int:
    """Number of training rows whose logits are in a folder."""
    file = folder / ROWS
    return len(np.load(file, mmap_mode="r")) if file.is_file() else 0


def _stored(folder: Path, fingerprint: str, hashes: np.ndarray) -> int | None:
    """Number of training rows whose logits are in a folder: fewer or more rows of a transfer set than the rows with
    these hashes. None without logits of this teacher for these rows."""
    if not (folder / ROWS).is_file() or structs.read(folder / run_folder.MANIFEST, Logits).teachers != fingerprint:
        return None
    stored = np.load(folder / ROWS)
    both = min(len(stored), len(hashes))
    return len(stored) if (stored[:both] == hashes[:both]).all() else None


def _joined(parts: Sequence[np.ndarray], halves: bool) -> np.ndarray:
    """Logits of consecutive rows, with `ABSENT` where those of a part are narrower: of fewer choices or, in `halves`
    for start and end, of shorter windows."""
    if len(parts) == 1:
        return parts[0]
    split = [part.reshape(len(part), 2 if halves else 1, -1) for part in parts]
    most = max(part.shape[2] for part in split)
    result = np.full((sum(map(len, split)), split[0].shape[1], most), ABSENT, np.float32)
    start = 0
    for part in split:
        result[start : start + len(part), :, : part.shape[2]] = part
        start += len(part)
    return result.reshape(len(result), -1)


def _of_rows(logits: np.ndarray, data: TaskData) -> np.ndarray:
    """The logits of the training rows, of logits of these rows and more; of windows all, those of other rows last."""
    kind, rows = data.task.kind, data.train
    if kind.extractive:
        return logits
    if kind.per_token:
        return logits[: sum(map(len, targets_of(rows)))]
    return logits[: len(rows), : max(map(len, rows[SECONDS][:])) if kind.choices else None]


def cross_fitted(teacher: Labeller, task: str) -> np.ndarray | None:
    """Logits [rows, C] for the task's own training rows, each of a model that was not trained on the row. None for a
    teacher that was trained without folds."""
    file = teacher.cross_fitted.get(task)
    return None if file is None else np.load(file, mmap_mode="r")


def soft_outputs(data: TaskData, encoded: Encoded) -> np.ndarray | None:
    """The soft labels of the training rows of a task as outputs, [rows, C] as from `teacher_logits`; NaN for rows, and
    for words, without. None if no row has them. `encoded`: the rows."""
    soft = soft_outputs_of(data.train)
    return None if soft is None else aligned(data.task.kind.architecture, soft, encoded)


def learned_outputs(teacher: Labeller, data: TaskData, runtime: Runtime, encoded: Encoded) -> np.ndarray:
    """Outputs [rows, C] from which a student learns, for the training rows of a task: with `soft_first` the soft label
    of a row and, for rows and words without one, the teachers' logits from `teacher_logits`. `encoded`: the rows."""
    soft = soft_outputs(data, encoded) if teacher.soft_first else None
    if soft is None:
        return teacher_logits(teacher, data, runtime)
    missing = np.isnan(soft).any(axis=1)
    if not missing.any():
        return soft
    logits = teacher_logits(teacher, data, runtime)[: len(soft)]
    if data.task.kind.extractive:  # windows of other rows may be longer
        logits = narrowed(logits, soft.shape[1] // 2)
    return np.where(missing[:, None], logits, soft)


def held_out(data: TaskData) -> tuple[Dataset, Dataset]:
    """Training rows for fine-tuning teachers whose weights are learned, and the rows that are held out for that."""
    is_held_out = np.arange(len(data.train)) % APART == APART - 1
    return data.train.select(np.flatnonzero(~is_held_out)), data.train.select(np.flatnonzero(is_held_out))


def learned_weights(
    folders: list[Path], tokenizers: list[Any], data: TaskData, window: int | None, runtime: Runtime
) -> list[float]:
    """Weights of the teachers whose models are in `folders`, with the least loss on the held-out rows."""
    _, rows = held_out(data)
    rows = rows.select(np.flatnonzero(labelled(np.asarray(rows["label"]))))
    logits = [_logits(f, t, data, rows, window, runtime) for f, t in zip(folders, tokenizers, strict=True)]
    return fit(logits, np.asarray(rows["label"]))


def _logits(
    folder: Path, tokenizer: Any, data: TaskData, rows: Dataset, window: int | None, runtime: Runtime
) -> np.ndarray:
    """Logits [rows, C] of one teacher, with its own tokenizer; of windows of `window` tokens unless it is None."""
    model = load_for(data.task, folder, pad_id=tokenizer.pad_token_id)
    return logits_of(model, tokenizer, data, rows, window, runtime)


def logits_of(
    model: nn.Module, tokenizer: Any, data: TaskData, rows: Dataset, window: int | None, runtime: Runtime
) -> np.ndarray:
    """Logits [rows, C] of a loaded teacher, which is frozen, as from `_logits`; of questions [windows, 2 W]."""
    run = running(frozen(model, runtime.machine), runtime.machine)
    encoded = data.encoded(rows, tokenizer, runtime.longest)
    if encoded.spans is not None:
        return window_logits(run, encoded, pad_id=tokenizer.pad_token_id)
    run = in_windows(run, tokenizer, window, pairs=data.task.in_pairs)
    return predict(run, encoded, pad_id=tokenizer.pad_token_id, left=tokenizer.padding_side == "left")


def running(model: nn.Module, machine: Machine) -> Callable[[Arrays], np.ndarray]:
    """A function from a batch to the model's logits [B, C]."""

    def logits(batch: Arrays) -> np.ndarray:
        with torch.no_grad():
            tensors = {key: torch.from_numpy(value).to(machine.device) for key, value in batch.items()}
            result: np.ndarray = families.logits(model, tensors).float().cpu().numpy()
        return result

    return logits
