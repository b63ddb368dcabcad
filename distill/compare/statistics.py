"""Statistics of two models on the same rows. Pure functions of numpy and scipy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import binomtest

from distill.evaluate.metrics import resampled

Score = Callable[[np.ndarray, np.ndarray], Mapping[str, float]]
"""(predictions, targets) -> metric -> value."""

RESAMPLES = 1000


def mcnemar(correct_a: np.ndarray, correct_b: np.ndarray) -> dict[str, Any]:
    """McNemar's exact test of equal accuracy: a two-sided binomial test of the rows on which only one is correct."""
    only_a, only_b = int((correct_a & ~correct_b).sum()), int((correct_b & ~correct_a).sum())
    discordant = only_a + only_b
    p = float(binomtest(only_a, discordant, 0.5).pvalue) if discordant else 1.0
    return {"only_a": only_a, "only_b": only_b, "p": p}


def bootstrap(
    score: Score, a: np.ndarray, b: np.ndarray, targets: np.ndarray, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, list[float]]:
    """Metric -> 95% interval of the score of `b` minus that of `a`.

    A paired bootstrap: both are scored on the same resampled rows, so that rows that are hard for both cancel out.
    """
    random = np.random.default_rng(seed)
    drawn: dict[str, list[float]] = {}
    for _ in range(resamples):
        chosen, wanted = resampled(targets, random)
        of_a, of_b = score(a[chosen], wanted), score(b[chosen], wanted)
        for metric, value in of_b.items():
            drawn.setdefault(metric, []).append(value - of_a[metric])
    return {metric: [float(end) for end in np.percentile(values, [2.5, 97.5])] for metric, values in drawn.items()}


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


def terciles(lengths: np.ndarray) -> list[tuple[int, int, np.ndarray]]:
    """(shortest, longest, numbers of the rows) of three groups by length; fewer where many rows are of one length."""
    edges = np.quantile(lengths, [1 / 3, 2 / 3], method="inverted_cdf")
    group = np.searchsorted(edges, lengths)
    rows: Sequence[np.ndarray] = [np.flatnonzero(group == number) for number in range(3)]
    return [(int(lengths[part].min()), int(lengths[part].max()), part) for part in rows if len(part)]


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Numbers of the rows with the largest values, in descending order; of equal values the first row comes first."""
    return np.argsort(-values, kind="stable")[:count]
