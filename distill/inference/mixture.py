"""Averages of several outputs for one text: of several teachers, or of the windows of a long text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from distill.data.task_types import TaskType

ROUNDS = 2000
"""Iterations of the search for weights; the cost of each is proportional to teachers x rows."""


def average(logits: Sequence[NDArray[np.float32]], weights: Sequence[float] | None = None) -> NDArray[np.float32]:
    """Logits [..., C] of the weighted mean of the probabilities of each [..., C] in `logits`.

    They are log probabilities, shifted to a mean of 0 in each row. A temperature applied later softens the mean, not
    the single outputs. The arithmetic mean of Hinton et al. 2015, arXiv 1503.02531, section 2. With one column
    (regression), the weighted mean of the outputs. Weights are normalized to sum to 1; None is equal weights. A single
    element is returned unchanged.
    """
    if len(logits) == 1:
        return logits[0]
    share = np.ones(len(logits)) if weights is None else np.asarray(weights, np.float64)
    share = share / share.sum()
    if logits[0].shape[-1] == 1:
        return np.tensordot(share, np.stack(logits).astype(np.float64), 1).astype(np.float32)
    with np.errstate(divide="ignore"):  # a weight may be 0
        log_share = np.log(share).reshape(-1, *[1] * logits[0].ndim)
    values = np.stack([log_probabilities(each) for each in logits]) + log_share
    largest = values.max(0)
    return _centred(largest + np.log(np.exp(values - largest).sum(0)))


def mixed(
    kind: TaskType, outputs: Sequence[NDArray[np.float32]], weights: Sequence[float] | None = None
) -> NDArray[np.float32]:
    """The outputs of several teachers for the rows of a kind of task as those of one teacher."""
    return (kind.mixed or average)(outputs, weights)


def average_by_text(logits: NDArray[np.float32], owner: NDArray[np.int64]) -> NDArray[np.float32]:
    """`average`, with equal weights, of the rows of `logits` [W, C] of each text; `owner` [W] ascends from 0."""
    counts = np.bincount(owner)
    starts = np.cumsum(counts) - counts
    if logits.shape[1] == 1:
        return (np.add.reduceat(logits.astype(np.float64), starts) / counts[:, None]).astype(np.float32)
    values = log_probabilities(logits)
    largest = np.maximum.reduceat(values, starts)
    total = np.add.reduceat(np.exp(values - largest[owner]), starts)
    return _centred(largest + np.log(total / counts[:, None]))


def mean_vector(
    vectors: NDArray[np.float32], owner: NDArray[np.int64], weights: NDArray[np.int64]
) -> NDArray[np.float32]:
    """The mean [texts, D] of the vectors [W, D] of each text's windows, scaled to the weighted mean of their lengths.

    Unit vectors become a unit vector; the vector of a single window is unchanged. As OpenAI's cookbook has it,
    "Embedding texts that are longer than the model's maximum context length".

    Args:
        owner: [W] number of each window's text, ascending from 0.
        weights: [W] weight of each window, above 0.
    """
    counts = np.bincount(owner)
    starts = np.cumsum(counts) - counts
    share = (weights / np.add.reduceat(weights, starts)[owner])[:, None]
    mean = np.add.reduceat(share * vectors, starts)
    length = np.add.reduceat(share * np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True), starts)
    mean *= length / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    return np.where((counts == 1)[:, None], vectors[starts], mean).astype(np.float32)


def fit(logits: Sequence[NDArray[np.float32]], labels: NDArray[np.int64] | NDArray[np.float32]) -> list[float]:
    """Weights, from 0 to 1 with sum 1, with which `average` has the least loss on rows with `labels` [N].

    Expectation maximization minimizes cross-entropy, exponentiated gradient descent squared error (regression); both
    losses are convex in the weights. No teacher may have been trained on these rows: stacking, Breiman 1996.
    """
    weights = np.full(len(logits), 1 / len(logits))
    if logits[0].shape[1] > 1:
        index = np.arange(len(labels)), labels.astype(np.int64)
        of_label = np.stack([log_probabilities(each)[index] for each in logits])
        likelihood = np.exp(of_label - of_label.max(0))
        for _ in range(ROUNDS):
            weights = (weights[:, None] * likelihood / (weights @ likelihood)).mean(1)
    else:
        errors = np.stack(logits)[:, :, 0].astype(np.float64) - labels
        products = errors @ errors.T / len(labels)
        for _ in range(ROUNDS):
            weights = weights * np.exp(-(products @ weights) / max(np.abs(products).max(), 1e-12))
            weights /= weights.sum()
    return [float(weight) for weight in weights]


def log_probabilities(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """Log probabilities, float64, of logits [..., C]."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(-1, keepdims=True))
    return shifted


def _centred(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Rows shifted to mean 0: a loss on logits must not depend on the normalization of a row."""
    return (values - values.mean(-1, keepdims=True)).astype(np.float32)
