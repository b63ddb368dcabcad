"""How well the confidence of a model matches its accuracy, before and after its logits are divided by a temperature.

Guo et al. 2017, On Calibration of Modern Neural Networks, arXiv 1706.04599.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace
from scipy.optimize import minimize_scalar

from distill.evaluation.results import Bin, Calibration
from distill.inference.mixture import log_probabilities

BINS = 15
LOWEST, HIGHEST = 0.05, 20.0
"""Least and largest temperature. Without a bound, the temperature of a model that makes no error would be 0."""


def reliability(logits: np.ndarray, labels: np.ndarray, temperature: float = 1.0, bins: int = BINS) -> list[Bin]:
    """A reliability diagram: the bins of confidence that have rows, of `bins` bins of equal width.

    Bin k is (k / bins, (k + 1) / bins], as in the paper.

    Args:
        logits: `[N, C]`, divided by the temperature.
        labels: `[N]` class numbers.

    Raises:
        ValueError: for logits of another shape, or with C = 1.
    """
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise ValueError(f"logits: got shape {logits.shape}; must be [N, C], C > 1 (not a regression)")
    confidence = np.exp(log_probabilities(logits / temperature).max(axis=1))
    correct = logits.argmax(axis=1) == labels
    bin_of_row = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    rows, sums, right = (np.bincount(bin_of_row, weights, bins) for weights in (None, confidence, correct))
    return [(float(sums[k] / rows[k]), float(right[k] / rows[k]), int(rows[k])) for k in np.flatnonzero(rows)]


def error_of(diagram: list[Bin]) -> float:
    """The expected calibration error, 0 to 1: the mean distance between confidence and accuracy, weighted by rows.

    diagram: at least one bin.

    Raises:
        ZeroDivisionError: without a bin.
    """
    total = sum(rows for *_, rows in diagram)
    return sum(rows * abs(confidence - accuracy) for confidence, accuracy, rows in diagram) / total


def temperature(logits: np.ndarray, labels: np.ndarray) -> float | None:
    """The temperature, from `LOWEST` to `HIGHEST`, at which labels `[N]` have the least mean negative log-likelihood.
    None where the model makes no error: then no confidence would be too high.

    The logits `[N, C]` are divided by it. The calibration must be reported on other rows than these.
    """
    rows = np.arange(len(labels))
    if (logits.argmax(axis=1) == labels).all():
        return None

    def loss(inverse: float) -> float:  # convex in the inverse, of which the logits are a multiple
        return -float(log_probabilities(logits * inverse)[rows, labels].mean())

    found = minimize_scalar(loss, bounds=(1 / HIGHEST, 1 / LOWEST), method="bounded", options={"xatol": 1e-5})
    return 1 / float(found.x)


def described(logits: np.ndarray, labels: np.ndarray, chosen: float | None) -> Calibration:
    """The calibration of a task, as in results.json.

    Args:
        logits, labels: `[N, C]` and `[N]`, as `reliability` takes them. Raises ValueError for other shapes.
        chosen: the temperature, from other rows. None if there are no other rows.
    """
    before = reliability(logits, labels)
    result = Calibration(ece=error_of(before), temperature=chosen, ece_scaled=None, bins=_rounded(before))
    if chosen is None:
        return result
    after = reliability(logits, labels, chosen)
    return replace(result, ece_scaled=error_of(after), bins_scaled=_rounded(after))


def _rounded(diagram: list[Bin]) -> list[Bin]:
    """With four decimals, because a report has thousands of bins."""
    return [(round(confidence, 4), round(accuracy, 4), rows) for confidence, accuracy, rows in diagram]
