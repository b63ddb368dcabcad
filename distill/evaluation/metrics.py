"""Metrics in numpy. Each takes predictions and labels of one form: class numbers `[N]`, numbers `[N]`, 0 and 1 for each
label `[N, K]`, codes of tags `[N]` of words, or for answers the values of each question `[N, 2]`.

An undefined metric (no positive prediction, a constant column) is 0.0, as in scikit-learn, but without a warning. They
are not scikit-learn's, whose checks of its arguments take longer than the metrics. Intervals are computed
from sums (`distill.evaluation.resamples`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from distill.data.task_types.spans import counts
from distill.errors import UserError

Metric = Callable[[np.ndarray, np.ndarray], float]


def accuracy(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Share of correct predictions, 0 to 1; of several labels, all must be correct."""
    same = predicted == (labels if labels.dtype.names is None else labels["label"])
    return float(np.mean(same if same.ndim == 1 else same.all(axis=1)))


def f1(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Harmonic mean of precision and recall of class 1, 0 to 1."""
    return f1_micro(predicted == 1, labels == 1)


def f1_micro(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Harmonic mean of precision and recall over all labels of all texts, 0 to 1."""
    predicted, true = predicted.astype(np.bool_), labels.astype(np.bool_)
    total = predicted.sum() + true.sum()
    return float(2 * (predicted & true).sum() / total) if total else 0.0


def f1_macro(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Mean over labels of the harmonic mean of precision and recall, 0 to 1.

    Of classes, those that neither occur nor are predicted do not count. Every label of several does, as in
    scikit-learn.
    """
    if labels.ndim == 1:
        wrong = predicted != labels
        size = int(max(predicted.max(), labels.max())) + 1
        false = np.bincount(predicted[wrong], minlength=size) + np.bincount(labels[wrong], minlength=size)
        true = np.bincount(labels[~wrong], minlength=size)
        occurs = true + false > 0
        return float(np.mean(2 * true[occurs] / (2 * true + false)[occurs]))
    both, either = (predicted & labels).sum(axis=0), predicted.sum(axis=0) + labels.sum(axis=0)
    return float(np.mean(np.divide(2 * both, either, out=np.zeros(len(both)), where=either > 0)))


def matthews(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Matthews correlation, any number of classes (Gorodkin 2004), -1 to 1."""
    predicted, true = predicted.astype(np.int64), labels.astype(np.int64)
    classes = int(max(predicted.max(), true.max())) + 1
    pairs = np.bincount(true * classes + predicted, minlength=classes**2)
    confusion = pairs.reshape(classes, classes).astype(np.float64)
    total, correct = confusion.sum(), np.trace(confusion)
    of_true, of_predicted = confusion.sum(axis=1), confusion.sum(axis=0)
    spread = (total**2 - of_predicted @ of_predicted) * (total**2 - of_true @ of_true)
    return float((correct * total - of_true @ of_predicted) / np.sqrt(spread)) if spread > 0 else 0.0


def pearson(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Linear correlation, -1 to 1."""
    predicted, true = predicted.astype(np.float64), labels.astype(np.float64)
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


def spearman(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Correlation of the ranks, -1 to 1."""
    return pearson(_ranks(predicted), _ranks(labels))


def ndcg_at_10(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Mean over groups of the normalized discounted cumulative gain of the first ten rows, 0 to 1.

    Järvelin and Kekäläinen 2002, with the label as the gain. Groups without a label above 0 do not count.

    predicted: a number for each row, or [n, 3] values of the groups of rows, as from `retrieval.grades`.
    labels: of `distill.data.task_types.task_type.GROUPED`, or of `retrieval.JUDGED`.
    """
    return _mean(of_groups(NDCG, predicted, labels))


def mrr_at_10(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Mean over groups of 1 / rank of the first row with a label above 0, or 0 if it is not among the first ten.

    Groups without a label above 0 do not count. `predicted`: as in `ndcg_at_10`.
    """
    return _mean(of_groups(MRR, predicted, labels))


def recall_at_10(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Mean over groups of the share of rows with a label above 0 that are among the first ten, 0 to 1.

    Groups without a label above 0 do not count. `predicted`: the values of the groups of rows, as in `ndcg_at_10`.
    """
    return _mean(of_groups(RECALL, predicted, labels))


NDCG, MRR, RECALL = range(3)
"""Columns of the values of groups."""


def of_groups(column: int, predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[groups] value of a metric of rankings, 0 to 1, in the order of the groups' numbers; NaN does not count.

    column: `NDCG`, `MRR`, or, where `predicted` are values of groups, `RECALL`.
    """
    if predicted.ndim == 2:
        of_groups: np.ndarray = predicted[np.unique(labels["group"], return_index=True)[1], column]
        return of_groups
    return (_ndcg, _reciprocal_rank)[column](predicted, labels)


def _mean(of_groups: np.ndarray) -> float:
    counted = of_groups[~np.isnan(of_groups)]
    return float(np.mean(counted)) if len(counted) else 0.0


def _ndcg(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    gains, ideal = (_gain(values, labels) for values in (predicted, labels["label"]))
    return np.divide(gains, ideal, out=np.full(len(ideal), np.nan), where=ideal > 0)


def _gain(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Discounted cumulative gain of each group, its rows in descending order of `values`."""
    order, group, rank = _ranking(values, labels)
    gains = np.where(rank < TOP, np.maximum(labels["label"][order], 0) / np.log2(rank + 2), 0)
    return np.bincount(group, weights=gains)


def _reciprocal_rank(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    order, group, rank = _ranking(predicted, labels)
    relevant = labels["label"][order] > 0
    best = np.full(group.max() + 1, np.inf)
    np.minimum.at(best, group[relevant], rank[relevant])
    return np.where(np.isinf(best), np.nan, np.where(best < TOP, 1 / (best + 1), 0))


def _ranking(values: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows by group and descending value; the number of each row's group, from 0; and its rank there, from 0."""
    order = np.lexsort((-values, labels["group"]))
    _, group, counts = np.unique(labels["group"][order], return_inverse=True, return_counts=True)
    starts = np.cumsum(counts) - counts
    return order, group, np.arange(len(order)) - starts[group]


def span_f1(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Harmonic mean of precision and recall of spans, 0 to 1, over all types together.

    A predicted span is correct if its first word, last word and type are those of a true one (Tjong Kim Sang and De
    Meulder 2003).

    labels: of `distill.data.task_types.spans.TAGGED`.
    """
    shared, ours, true = (part.sum() for part in counts(predicted, labels["label"], labels["group"]))
    return float(2 * shared / (ours + true)) if ours + true else 0.0


def exact_match(graded: np.ndarray, labels: np.ndarray) -> float:
    """Share of questions whose answer is an accepted one, 0 to 1. `graded`: [n, 2], as from `answers.grades`."""
    return float(np.mean(graded[:, 0]))


def answer_f1(graded: np.ndarray, labels: np.ndarray) -> float:
    """Mean F1 of the words of answers, 0 to 1. `graded`: [n, 2], as from `answers.grades`."""
    return float(np.mean(graded[:, 1]))


def resampled(labels: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of rows drawn with replacement, and their labels. Rows of a group are drawn together, as a new group."""
    if labels.dtype.names is None:
        rows = random.integers(0, len(labels), len(labels))
        return rows, labels[rows]
    order = np.argsort(labels["group"], kind="stable")
    _, starts, counts = np.unique(labels["group"][order], return_index=True, return_counts=True)
    drawn = random.integers(0, len(starts), len(starts))
    rows = np.concatenate([order[starts[n] : starts[n] + counts[n]] for n in drawn])
    copy = labels[rows]
    copy["group"] = np.repeat(np.arange(len(drawn)), counts[drawn])
    return rows, copy


TOP = 10
"""Rows of a group that metrics of rankings consider."""

METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "answer_f1": answer_f1,
    "exact_match": exact_match,
    "f1": f1,
    "f1_macro": f1_macro,
    "f1_micro": f1_micro,
    "matthews": matthews,
    "mrr_at_10": mrr_at_10,
    "ndcg_at_10": ndcg_at_10,
    "pearson": pearson,
    "recall_at_10": recall_at_10,
    "span_f1": span_f1,
    "spearman": spearman,
}


def score(metrics: Sequence[str], predicted: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Metric -> value in percent (a correlation times 100)."""
    return {name: 100 * METRICS[name](predicted, labels) for name in metrics}


def finite(outputs: np.ndarray) -> np.ndarray:
    """The outputs `[N, C]`. UserError if one is not finite."""
    broken = int((~np.isfinite(outputs)).any(axis=-1).sum())
    if broken:
        raise UserError(
            f"logits: got {broken} rows of {len(outputs)} with NaN or infinity; must be finite; "
            "training diverged or the scheme overflows: lower the learning rate or set precision"
        )
    return outputs
