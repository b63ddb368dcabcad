"""Statistics of two models on the same rows. Pure functions of numpy and scipy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import binomtest

from distill.evaluation import resamples


def bootstrap(names: Sequence[str], a: np.ndarray, b: np.ndarray, targets: np.ndarray) -> dict[str, list[float]]:
    """Metric -> 95% interval of the score of `b` minus that of `a`, in points.

    A paired bootstrap: both are scored on the same resampled rows (`distill.evaluation.resamples`).
    """
    drawn = resamples.drawn(names, {"a": a, "b": b}, targets)
    ends = {name: resamples.interval(drawn["b"][name] - drawn["a"][name]) for name in names}
    return {name: list(both) for name, both in ends.items() if both is not None}


def share(flags: np.ndarray) -> dict[str, Any]:
    """Percentage of rows whose flag is set, with its 95% interval (Wilson's)."""
    interval = binomtest(int(flags.sum()), len(flags)).proportion_ci(method="wilson")
    return {"percent": 100 * float(flags.mean()), "ci95": [100 * float(interval.low), 100 * float(interval.high)]}


def per_label(predicted: np.ndarray, targets: np.ndarray) -> list[dict[str, float | None]]:
    """Recall and F1 of each label in percent, of flags [n, labels]. None where a label does not occur."""
    both, wanted = (predicted & targets).sum(axis=0), targets.sum(axis=0)
    either = predicted.sum(axis=0) + wanted
    return [
        {"recall": 100 * float(hit / count) if count else None, "f1": 200 * float(hit / total) if total else None}
        for hit, count, total in zip(both, wanted, either, strict=True)
    ]


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Numbers of the rows with the largest values, in descending order; of equal values the first row comes first."""
    return np.argsort(-values, kind="stable")[:count]
