"""The vectors that a student learns where its teacher's have another width: the map from the one space to the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from distill.data.task_types.embedding import halves
from distill.data.tasks import TaskData, soft_outputs_of
from distill.inference.predict import predict
from distill.models.families.embedding import has_unit_length, width_of
from distill.pipeline.runtime import Runtime
from distill.pipeline.train_steps.inputs import MemberInputs
from distill.pipeline.train_steps.teacher_logits import running

MOST = 4096
"""Training rows from which a map is computed, evenly spaced among more."""

_NONE = 1e-12
"""Share of the largest squared length of a component, below which it is rounding: float32 has 7 digits."""


def to_learned_form(model: Any, inputs: MemberInputs, data: TaskData) -> None:
    """Give an embedder a linear layer to the width of stored vectors or, without these, of the teacher's, and let its
    vectors have length 1 if those have it: an index of these may compare them by dot products.

    The student of several teachers keeps its own width: all of theirs together would be a large index.
    """
    soft = soft_outputs_of(data.train.select([0]))
    if soft is not None:
        model.to_width(soft.shape[1] // len(data.task.columns))
    elif not inputs.own_width:
        model.to_width(width_of(inputs.given))
    if soft is not None or has_unit_length(inputs.given):  # stored vectors are scaled to length 1
        model.to_unit_length()


def in_own_space(
    model: Any, learned: np.ndarray | None, own: int, data: TaskData, tokenizer: Any, runtime: Runtime
) -> Callable[[Tensor], Tensor] | None:
    """A function from teachers' vectors [n, 2 D] to those of the student's width [n, 2 k], each of length 1. None where
    they have that width, and for models that do not embed.

    Args:
        model: the student with which training starts, on its device.
        learned: [rows, 2 D] teachers' vectors of both texts of each training row; None where they are not learned.
        own: number of rows of the task itself, which come first. Only these count, so that all stages use one space.
    """
    if learned is None or not data.task.kind.separate or learned.shape[1] == 2 * model.width:
        return None
    rows = np.unique(np.linspace(0, own - 1, min(own, MOST)).astype(np.int64))
    encoded, training = data.encoded(data.train.select(rows), tokenizer, runtime.longest), model.training
    left = tokenizer.padding_side == "left"
    model.eval()
    start = predict(running(model, runtime.machine), encoded, pad_id=tokenizer.pad_token_id, left=left)
    model.train(training)
    found = projection(*(np.concatenate(halves(each)) for each in (learned[rows], start)))
    matrix = torch.from_numpy(found).to(runtime.machine.device)

    def mapped(vectors: Tensor) -> Tensor:
        # Rounded products would be other targets in 16 bits than in 32.
        with torch.autocast(vectors.device.type, enabled=False):
            both = vectors.float().unflatten(1, (2, -1)) @ matrix
            return F.normalize(both, dim=-1).flatten(1)

    return mapped


def projection(vectors: np.ndarray, start: np.ndarray) -> np.ndarray:
    """The linear map [D, k] of vectors [n, D] that keeps their dot products best, float32.

    It has the k principal components of the vectors, not centred: no other map of that rank is closer to their matrix
    of dot products in the Frobenius norm (Eckart and Young 1936, Psychometrika 1). With k >= D all are kept. Directions
    that no vector has map to 0, because which of them eigh returns depends on the machine. Dot products do not change
    with a rotation, so the one is chosen that brings the vectors closest to those [n, k] with which the student starts:
    the orthogonal Procrustes problem (Schönemann 1966, Psychometrika 31).
    """
    vectors, start = vectors.astype(np.float64), start.astype(np.float64)
    lengths, components = np.linalg.eigh(vectors.T @ vectors)  # the largest last
    kept = components[:, lengths > _NONE * lengths[-1]][:, -start.shape[1] :]
    left, _, right = np.linalg.svd((vectors @ kept).T @ start, full_matrices=False)
    matrix: np.ndarray = (kept @ left @ right).astype(np.float32)
    return matrix
