"""The metrics of GLUE in numpy. Each takes logits `[N, C]` (or predictions `[N]`) and labels `[N]`.

The predicted class is the argmax; a single column is a regression. An undefined metric (no positive prediction, a
constant column) is 0.0, as in scikit-learn, but without a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from distill.errors import UserError

Metric = Callable[[np.ndarray, np.ndarray], float]


def predictions(logits: np.ndarray) -> np.ndarray:
    """`[N, C]` -> class indexes `[N]`; `[N, 1]` -> values `[N]`; `[N]` is returned unchanged."""
    if logits.ndim == 1:
        return logits
    return logits[:, 0] if logits.shape[1] == 1 else logits.argmax(axis=1)


def accuracy(logits: np.ndarray, labels: np.ndarray) -> float:
    """Share of correct predictions, 0 to 1."""
    return float(np.mean(predictions(logits) == labels))


def f1(logits: np.ndarray, labels: np.ndarray) -> float:
    """Harmonic mean of precision and recall of class 1, 0 to 1."""
    predicted, true = predictions(logits) == 1, labels == 1
    total = predicted.sum() + true.sum()
    return float(2 * (predicted & true).sum() / total) if total else 0.0


def matthews(logits: np.ndarray, labels: np.ndarray) -> float:
    """Matthews correlation, any number of classes (Gorodkin 2004), -1 to 1."""
    predicted, true = predictions(logits).astype(np.int64), labels.astype(np.int64)
    classes = int(max(predicted.max(), true.max())) + 1
    pairs = np.bincount(true * classes + predicted, minlength=classes**2)
    confusion = pairs.reshape(classes, classes).astype(np.float64)
    total, correct = confusion.sum(), np.trace(confusion)
    of_true, of_predicted = confusion.sum(axis=1), confusion.sum(axis=0)
    spread = (total**2 - of_predicted @ of_predicted) * (total**2 - of_true @ of_true)
    return float((correct * total - of_true @ of_predicted) / np.sqrt(spread)) if spread > 0 else 0.0


def pearson(logits: np.ndarray, labels: np.ndarray) -> float:
    """Linear correlation, -1 to 1."""
    predicted, true = predictions(logits).astype(np.float64), labels.astype(np.float64)
    # Not by the standard deviation, which need not be 0: the mean of a constant column may be rounded.
    if np.ptp(predicted) == 0 or np.ptp(true) == 0:
        return 0.0
    predicted, true = predicted - predicted.mean(), true - true.mean()
    return float(np.clip(predicted @ true / (np.linalg.norm(predicted) * np.linalg.norm(true)), -1, 1))


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks `[N]` from 1; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last: np.ndarray = counts.cumsum()
    return (last - (counts - 1) / 2)[inverse]


def spearman(logits: np.ndarray, labels: np.ndarray) -> float:
    """Correlation of the ranks, -1 to 1."""
    return pearson(_ranks(predictions(logits)), _ranks(labels))


METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}


def score(metrics: Sequence[str], logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Metric -> value in percent (a correlation times 100). UserError if a logit is not finite."""
    broken = int((~np.isfinite(logits)).any(axis=-1).sum())
    if broken:
        raise UserError(
            f"logits: got {broken} rows of {len(logits)} with NaN or infinity; must be finite; "
            "training diverged or the scheme overflows: lower the learning rate or set precision"
        )
    return {name: 100 * METRICS[name](logits, labels) for name in metrics}
