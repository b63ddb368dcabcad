"""Cross-fitted outputs of a teacher: its outputs for training rows on which it was not trained.

A model that was fine-tuned on a row outputs little more for it than its label. With K folds, K further models are
trained, each on all rows except one fold: the cross-fitting of Dao et al. 2021, arXiv 2104.09732. Deviation: rows of a
transfer set, which no model was trained on, are labelled by the model of all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from msgspec.structs import replace as replace_struct

from distill.data.splits import Split, hashes
from distill.data.tasks import TaskData
from distill.pipeline.artefacts import Fold, TaskModel
from distill.pipeline.runtime import Runtime
from distill.pipeline.train_steps.prepare import FOLDS, forget_training
from distill.pipeline.train_steps.rounds import Part, Rounds
from distill.pipeline.train_steps.teacher_logits import LOGITS, logits_of
from distill.runtime.storage import atomic, run_folder, structs

Fit = Callable[[TaskData, str, Runtime], tuple[Any, TaskModel]]
"""(a task with a part of its training rows, a folder relative to the run folder) -> a model trained on these rows."""


@dataclass(frozen=True)
class CrossFitted:
    logits: np.ndarray
    """[rows, C] of the task's training rows, each of the model that was not trained on it."""
    seconds: float
    """Time that the models of all folds took."""
    tokens: int
    """Tokens on which they were trained."""


def with_folds(made: TaskModel, folds: CrossFitted | None) -> TaskModel:
    """What a model took, with what its folds took."""
    if folds is None:
        return made
    return replace_struct(made, tokens=made.tokens + folds.tokens, seconds=made.seconds + folds.seconds)


def texts(data: TaskData) -> np.ndarray:
    """[rows] hash of the first text of each training row."""
    columns = data.task.columns[:1]
    rows = data.train.select_columns(list(columns)).with_format("arrow")[:]
    return hashes(Split(rows, np.arange(len(data.train))), columns)


def fold_of(data: TaskData, count: int) -> np.ndarray:
    """[rows] fold of each training row, from 0. Rows with the same first text are in the same fold, and folds have
    about the same number of first texts."""
    # By the order of the hashes: a remainder of the hashes themselves would leave folds of small tasks empty.
    return np.unique(texts(data), return_inverse=True)[1] % count


def in_folds(
    count: int, name: str, data: TaskData, tokenizer: Any, window: int | None, fit: Fit, runtime: Runtime
) -> Rounds[CrossFitted]:
    """Train a model for each of `count` folds on the rows of the others. `name`: folder of the task's model.

    The outputs of each for its fold are stored, so that a stopped run does not train it again.
    """
    numbers, names = fold_of(data, count), [f"{name}{FOLDS}/{fold + 1}" for fold in range(count)]
    yield [
        Part(folder, partial(_of_fold, folder, data, numbers == fold, tokenizer, window, fit))
        for fold, folder in enumerate(names)
    ]
    parts = [np.load(runtime.folder / folder / LOGITS) for folder in names]
    made = [structs.read(runtime.folder / folder / run_folder.MANIFEST, Fold) for folder in names]
    logits = np.empty((len(numbers), parts[0].shape[1]), np.float32)
    for fold, part in enumerate(parts):
        logits[numbers == fold] = part
    return CrossFitted(logits, sum(each.seconds for each in made), sum(each.tokens for each in made))


def _of_fold(
    name: str, data: TaskData, own: np.ndarray, tokenizer: Any, window: int | None, fit: Fit, runtime: Runtime
) -> None:
    """Train the model of a fold, whose rows are flagged by `own` [rows], and store its outputs for them."""
    model, made = fit(replace(data, train=data.train.select(np.flatnonzero(~own))), name, runtime)
    if runtime.machine.main:
        logits = logits_of(model, tokenizer, data, data.train.select(np.flatnonzero(own)), window, runtime)
        with atomic.writing(runtime.folder / name) as temporary:
            np.save(temporary / LOGITS, logits, allow_pickle=False)
            structs.write(temporary / run_folder.MANIFEST, Fold(tokens=made.tokens, seconds=made.seconds))
    forget_training(name, runtime)
    runtime.machine.wait()
