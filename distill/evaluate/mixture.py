"""Several answers to one text taken as one: those of several teachers, or to the windows of a long text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

ROUNDS = 2000
"""Of the search for weights; each costs teachers x rows."""


def average(logits: Sequence[NDArray[np.float32]], weights: Sequence[float] | None = None) -> NDArray[np.float32]:
    """Logits [N, C] of the weighted mean of the probabilities that each [N, C] of `logits` stands for.

    They are the logarithms of it, with a mean of 0 in each row; softened by a temperature later on, it is the mean that
    is softened. The arithmetic mean of Hinton et al. 2015, arXiv 1503.02531, section 2. With one output (regression),
    the weighted mean of it. Weights are made to sum to 1; equal when None. One alone is left as it is.
    """
    if len(logits) == 1:
        return logits[0]
    share = np.ones(len(logits)) if weights is None else np.asarray(weights, np.float64)
    share = share / share.sum()
    if logits[0].shape[1] == 1:
        return np.tensordot(share, np.stack(logits).astype(np.float64), 1).astype(np.float32)
    with np.errstate(divide="ignore"):  # a weight may be 0
        heights = np.log(share)[:, None, None]
    return _log_sum(np.stack([log_probabilities(one) for one in logits]) + heights)


def average_by_text(logits: NDArray[np.float32], owner: NDArray[np.int64]) -> NDArray[np.float32]:
    """`average`, with equal weights, of the rows of `logits` [W, C] of each text; `owner` [W] ascends from 0."""
    counts = np.bincount(owner)
    starts = np.cumsum(counts) - counts
    if logits.shape[1] == 1:
        return (np.add.reduceat(logits.astype(np.float64), starts) / counts[:, None]).astype(np.float32)
    found = log_probabilities(logits)
    most = np.maximum.reduceat(found, starts)
    total = np.add.reduceat(np.exp(found - most[owner]), starts)
    return _centred(most + np.log(total / counts[:, None]))


def fit(logits: Sequence[NDArray[np.float32]], labels: NDArray[np.int64] | NDArray[np.float32]) -> list[float]:
    """Weights, from 0 to 1 and 1 in all, with which `average` does best on rows with `labels` [N].

    Best by cross-entropy, through expectation maximization, or by squared error (regression), through exponentiated
    gradient descent: both are convex in the weights. The rows must be ones that no teacher was trained on: stacking,
    Breiman 1996.
    """
    weights = np.full(len(logits), 1 / len(logits))
    if logits[0].shape[1] > 1:
        own = np.stack([log_probabilities(one)[np.arange(len(labels)), labels.astype(np.int64)] for one in logits])
        likely = np.exp(own - own.max(0))
        for _ in range(ROUNDS):
            weights = (weights[:, None] * likely / (weights @ likely)).mean(1)
    else:
        errors = np.stack(logits)[:, :, 0].astype(np.float64) - labels
        products = errors @ errors.T / len(labels)
        for _ in range(ROUNDS):
            weights = weights * np.exp(-(products @ weights) / max(np.abs(products).max(), 1e-12))
            weights /= weights.sum()
    return [float(weight) for weight in weights]


def log_probabilities(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(-1, keepdims=True))
    return shifted


def _log_sum(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """log of the sum over the first axis of exp."""
    most = values.max(0)
    return _centred(most + np.log(np.exp(values - most).sum(0)))


def _centred(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """A loss that compares logits themselves must not see how large the probabilities of a row are together."""
    return (values - values.mean(-1, keepdims=True)).astype(np.float32)
