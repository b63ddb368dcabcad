"""The predictions of two models on the same rows: agreement, scores, and both by label and by length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distill.cli.compare import statistics
from distill.data.task_types import KINDS, Kind
from distill.evaluation import metrics
from distill.evaluation.lengths import terciles
from distill.evaluation.significance import mcnemar

EXACT = 0
"""Column of `Kind.grade` with 1 for an answer that is an accepted one."""


def shown(kind: Kind) -> Kind:
    """The kind of the outputs that are compared: those of embedders are cosines, which are numbers."""
    return KINDS["regression"] if kind.separate else kind


def compared(
    kind: Kind,
    a: np.ndarray,
    b: np.ndarray,
    judged: Sequence[np.ndarray],
    targets: np.ndarray | None,
    chosen: np.ndarray,
    names: Sequence[str],
    lengths: np.ndarray,
) -> dict[str, Any]:
    """What depends on predictions: the keys `agreement`, `scores`, `mcnemar`, `lengths` and `classes` of compare.json.

    Args:
        a, b: predictions of all rows.
        judged: of A and B, what metrics take for all rows besides the targets: predictions, or values of `Kind.grade`.
        targets: of all rows, as metrics take them; None if the file has no labels.
        chosen: [n] whether each row has a label.
        names: of the labels; empty for a number.
        lengths: [n] tokens of each row.
    """
    groups = [
        {"from": low, "to": high, "rows": len(part), "agreement": agreement(kind, a[part], b[part])}
        for low, high, part in terciles(lengths)
    ]
    result = {"agreement": agreement(kind, a, b), "scores": None, "mcnemar": None, "lengths": groups}
    if targets is None or not chosen.any():
        return result | {"classes": classes(kind, a, b, None, names)}
    for group, (*_, rows) in zip(groups, terciles(lengths), strict=True):
        part = rows[chosen[rows]]
        group["labelled_rows"] = len(part)
        group["scores"] = {
            name: score(kind, each[part], targets[part]) if len(part) else None
            for name, each in zip("ab", judged, strict=True)
        }
    a, b, targets = a[chosen], b[chosen], targets[chosen]
    result["scores"] = scores(kind, judged[0][chosen], judged[1][chosen], targets)
    if kind.extractive:
        result["mcnemar"] = mcnemar(*(each[chosen, EXACT] == 1 for each in judged))
    elif kind.same is not None:
        result["mcnemar"] = mcnemar(kind.same(a, targets), kind.same(b, targets))
    return result | {"classes": classes(kind, a, b, targets, names)}


def agreement(kind: Kind, a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    """How often two predictions are the same; of numbers, their correlations and mean absolute difference."""
    if kind.same is not None:
        return statistics.share(kind.same(a, b))
    distance = float(np.abs(a.astype(np.float64) - b).mean())
    correlations = {name: metrics.METRICS[name](a, b) for name in ("pearson", "spearman")}
    return correlations | {"mean_absolute_difference": distance}


def score(kind: Kind, predicted: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """Metric -> value in percent."""
    return metrics.score(_names(kind), predicted, targets)


def _names(kind: Kind) -> tuple[str, ...]:
    """The metrics that are compared: accuracy, which McNemar's test compares, if it is defined, and the kind's metrics;
    of words all metrics."""
    accuracy = [name for name in kind.all_metrics if name == "accuracy"]
    return kind.all_metrics if kind.per_token else tuple(dict.fromkeys((*accuracy, *kind.metrics)))


def scores(kind: Kind, a: np.ndarray, b: np.ndarray, targets: np.ndarray) -> dict[str, dict[str, Any]]:
    """Metric -> score of both models, and their difference with its interval.

    The interval is None if all resamples have the same difference: these rows then do not show how far it varies.
    """
    intervals = statistics.bootstrap(_names(kind), a, b, targets)
    of_a, of_b = score(kind, a, targets), score(kind, b, targets)
    return {
        metric: {
            "a": of_a[metric],
            "b": of_b[metric],
            "difference": of_b[metric] - of_a[metric],
            "ci95": [low, high] if low < high else None,
        }
        for metric, (low, high) in intervals.items()
    }


def classes(
    kind: Kind, a: np.ndarray, b: np.ndarray, targets: np.ndarray | None, names: Sequence[str]
) -> list[dict[str, Any]]:
    """For each label: its rows, and how many of them each model predicts; with targets, recall and F1 of both."""
    if kind.flags is None:
        return []
    of_a, of_b = kind.flags(a, len(names)), kind.flags(b, len(names))
    counts = [{"a": int(n), "b": int(m)} for n, m in zip(of_a.sum(axis=0), of_b.sum(axis=0), strict=True)]
    rows = [{"label": name, "rows": None, "predicted": count} for name, count in zip(names, counts, strict=True)]
    if targets is None:
        return rows
    wanted = kind.flags(targets, len(names))
    quality = zip(statistics.per_label(of_a, wanted), statistics.per_label(of_b, wanted), strict=True)
    totals = wanted.sum(axis=0)
    return [row | {"rows": int(n), "a": x, "b": y} for row, n, (x, y) in zip(rows, totals, quality, strict=True)]
