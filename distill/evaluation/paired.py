"""The predictions of two models for the same rows: agreement, and the scores of both by label and by length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import binomtest

from distill.data.task_types import TaskType
from distill.data.task_types.spans import TAGGED, types_of
from distill.evaluation import metrics, resamples
from distill.evaluation.clusters import usable
from distill.evaluation.few_rows import differing
from distill.evaluation.lengths import terciles
from distill.evaluation.significance import mcnemar, right


def compared(
    kind: TaskType,
    predictions: Sequence[np.ndarray],
    judged: Sequence[np.ndarray],
    truth: np.ndarray | None,
    chosen: np.ndarray,
    owners: np.ndarray,
    lengths: np.ndarray,
    names: Sequence[str],
    parts: np.ndarray | None = None,
) -> dict[str, Any]:
    """Agreement and scores of two models, A and B, in all and by length, McNemar's test, and counts of each label.

    There is no McNemar test of words, because those of a text are not independent, and none of rows that share texts.
    Intervals of words resample texts, and intervals of rows that share texts resample their parts. Rankings have no
    scores by length, because a part of the rows of a query would be another ranking.

    Args:
        predictions: of A and B, [R] or [R, labels] as metrics take them. R is the number of rows or of their words.
        judged: of A and B, what metrics take besides the truth: the predictions, or values of `TaskType.grade` [R, K].
        truth: [R] or [R, labels] as metrics take it; None without labels.
        chosen: [R] whether each row, or the text of each word, has a label.
        owners: [R] number of each row, or of the text of each word, from 0 to n - 1.
        lengths: [n] tokens of each row or text.
        names: of the labels; empty for numbers.
        parts: [n] number of the part that each row is drawn with, as from `clusters`. Not for words.
    """
    (a, b), wanted = predictions, metrics_of(kind)
    truth = truth if chosen.any() else None
    groups: list[dict[str, Any]] = []
    for low, high, rows in terciles(lengths):
        inside = np.isin(owners, rows)
        agreed = agreement(kind, a[inside], b[inside], owners[inside], _of(parts, inside))
        groups.append({"from": low, "to": high, "rows": len(rows), "agreement": agreed})
        if truth is not None and not kind.grouped:
            part = inside & chosen
            scored = [metrics.score(wanted, each[part], truth[part]) if part.any() else None for each in judged]
            groups[-1]["labelled_rows"] = len(np.unique(owners[part]))
            groups[-1]["scores"] = dict(zip("ab", scored, strict=True))
    result = {"agreement": agreement(kind, a, b, owners, parts), "scores": None, "mcnemar": None, "lengths": groups}
    if truth is None:
        return result | {"classes": classes(kind, a, b, owners, None, names)}
    alone = parts is None or len(np.unique(parts[chosen])) == chosen.sum()
    a, b, owners, truth, parts = a[chosen], b[chosen], owners[chosen], truth[chosen], _of(parts, chosen)
    of_a, of_b = (each[chosen] for each in judged)
    correct = [right(wanted[:1], kind.same, {("", ""): (each, truth)}) for each in (of_a, of_b)]
    result["scores"] = scores(wanted, of_a, of_b, truth, parts)
    if correct[0] is not None and correct[1] is not None and alone:
        result["mcnemar"] = mcnemar(correct[0], correct[1])
    return result | {"classes": classes(kind, a, b, owners, truth, names)}


def metrics_of(kind: TaskType) -> tuple[str, ...]:
    """The metrics that are compared: accuracy, which McNemar's test compares, if it is defined, and the kind's metrics;
    of words all metrics."""
    accuracy = [name for name in kind.all_metrics if name == "accuracy"]
    return kind.all_metrics if kind.per_token else tuple(dict.fromkeys((*accuracy, *kind.metrics)))


def _of(parts: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    """The parts of some of the rows, as from `clusters`."""
    return None if parts is None else usable(parts[rows])


def agreement(
    kind: TaskType, a: np.ndarray, b: np.ndarray, owners: np.ndarray, parts: np.ndarray | None = None
) -> dict[str, Any]:
    """How often two predictions are the same, in percent, with its 95% interval (Wilson's, or of a bootstrap over
    `parts`); of numbers, their correlations and mean absolute difference.

    Of `words`, the percent that have the same tag, with the interval of a bootstrap over texts, and F1 of the `spans`
    of one model against the other's. These are None where there are no words or no spans.

    Args:
        a, b: predictions [R] or [R, labels].
        owners: [R] number of the text of each word.
        parts: [R] number of the part that each row is drawn with.
    """
    if kind.per_token:
        other = _tagged(b, owners)
        spans = 100 * metrics.METRICS["span_f1"](a, other) if max(a.max(initial=-1), b.max(initial=-1)) >= 0 else None
        if not len(a):
            return {"percent": None, "ci95": None, "words": 0, "spans": spans}
        ends = resamples.interval(resamples.drawn(["accuracy"], {"a": a}, other)["a"]["accuracy"])
        same = 100 * float((a == b).mean())
        return {"percent": same, "ci95": ends and list(ends), "words": len(a), "spans": spans}
    if kind.same is not None:
        flags = kind.same(a, b)
        if parts is not None and 0 < flags.mean() < 1:
            values = resamples.drawn(["accuracy"], {"a": flags}, np.ones_like(flags), clusters=parts)["a"]["accuracy"]
            return {"percent": 100 * float(flags.mean()), "ci95": list(resamples.interval(values) or ())}
        units = len(flags) if parts is None else int(parts.max()) + 1  # of which all agree, or none
        interval = binomtest(round(flags.mean() * units), units).proportion_ci(method="wilson")
        return {"percent": 100 * float(flags.mean()), "ci95": [100 * float(interval.low), 100 * float(interval.high)]}
    distance = float(np.abs(a.astype(np.float64) - b).mean())
    correlations = {name: metrics.METRICS[name](a, b) for name in ("pearson", "spearman")}
    return correlations | {"mean_absolute_difference": distance}


def scores(
    names: Sequence[str], a: np.ndarray, b: np.ndarray, truth: np.ndarray, parts: np.ndarray | None = None
) -> dict[str, dict[str, Any]]:
    """Metric -> score of both models in percent, and their difference with its 95% interval by a paired bootstrap,
    and the number of units that resamples draw on which the two differ.

    The interval is None if all resamples have the same difference: these rows then do not show how far it varies.

    Args:
        names: of the metrics.
        a, b, truth: [N] or [N, K] of the same rows, as metrics take them.
        parts: [N] number of the part that each row is drawn with.
    """
    parts = None if truth.dtype.names else parts
    drawn = resamples.drawn(names, {"a": a, "b": b}, truth, clusters=parts)
    of_a, of_b = metrics.score(names, a, truth), metrics.score(names, b, truth)
    ends = {name: resamples.interval(drawn["b"][name] - drawn["a"][name]) for name in names}
    return {
        name: {
            "a": of_a[name],
            "b": of_b[name],
            "difference": of_b[name] - of_a[name],
            "ci95": list(both) if both is not None and both[0] < both[1] else None,
            "differing": differing([name], a, b, truth, parts),
        }
        for name, both in ends.items()
    }


def classes(
    kind: TaskType, a: np.ndarray, b: np.ndarray, owners: np.ndarray, truth: np.ndarray | None, names: Sequence[str]
) -> list[dict[str, Any]]:
    """For each label, or type of span: how often it is in the truth, and how often each model predicts it. With a truth
    also recall and F1 of both in percent, which are None for a label that does not occur. Empty without labels.

    Args:
        a, b, truth: [R] or [R, labels], as metrics take them.
        owners: [R] number of the text of each word.
    """
    if kind.recalled is None:
        return []
    found = [kind.counted(each, _tagged(each, owners) if kind.per_token else each, names) for each in (a, b)]
    hits = [] if truth is None else [kind.counted(each, truth, names) for each in (a, b)]
    rows: list[dict[str, Any]] = []
    for label in types_of(names) if kind.per_token else names:
        predicted = {name: counts.get(label, (0, 0))[1] for name, counts in zip("ab", found, strict=True)}
        rows.append({"label": label, "rows": None, "predicted": predicted})
        for name, counts in zip("ab", hits, strict=False):
            both, rows[-1]["rows"] = counts.get(label, (0, 0))
            rows[-1][name] = _quality(both, rows[-1]["rows"], predicted[name])
    return rows


def _quality(both: int, true: int, predicted: int) -> dict[str, float | None]:
    either = true + predicted
    return {"recall": 100 * (both / true) if true else None, "f1": 200 * (both / either) if either else None}


def _tagged(codes: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """[words] of `TAGGED`: codes of tags with the number of each word's text."""
    words = np.empty(len(codes), TAGGED)
    words["label"], words["group"] = codes, owners
    return words
