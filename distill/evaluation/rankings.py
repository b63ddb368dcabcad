"""Metrics of the ranked rows of each group, and their expected values for rows in random order.

nDCG is the normalized discounted cumulative gain, with labels above 0 as gains (Järvelin and Kekäläinen 2002). The
reciprocal rank is 1 / the rank of the first row with a label above 0. Recall is the share of rows with a label above 0
that are among the first ten. These three consider the first ten rows, and are means over all orders of rows with equal
scores (McSherry and Najork 2008), as scikit-learn's nDCG is. The average precision considers all rows: for each row
with a label above 0, the share of such rows up to its rank, and of these shares the mean. Rows with equal scores share
the last of their ranks, as in scikit-learn. So no metric depends on the order of the rows. MAP is the mean of average
precisions over groups. Each is 0 to 1. A group without a label above 0 does not count.

Labels are of `distill.data.task_types.task_type.GROUPED`, where the rows of a group are ranked, or of
`retrieval.JUDGED`, where the documents of all rows are ranked for each group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from distill.data.task_types import ranks
from distill.data.task_types.ranks import TOP
from distill.data.task_types.retrieval import JUDGED

NDCG, MRR, RECALL, MAP = range(4)
"""Columns of the values of groups; the first three are those from `retrieval.grades`."""

Expected = Callable[[np.ndarray, int], float]
"""(gains of some documents of a group, which include all gains above 0; number of all documents) -> the expected value
of a metric over all orders of the documents."""


def columns(column: int, predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """`[groups, 2]` the value of each group, and whether it counts. Groups are in the order of their numbers.

    Args:
        column: `NDCG`, `MRR` or, where `predicted` are scores, `MAP`, or, where they are values of groups, `RECALL`.
        predicted: `[N]` a score for each row; or `[N, 3]` values of the row's group, as from `retrieval.grades`.
        labels: `[N]` of `GROUPED` or `JUDGED`.
    """
    if predicted.ndim == 2:
        values = predicted[np.unique(labels["group"], return_index=True)[1], column]
    else:
        values = {NDCG: _ndcg, MRR: _reciprocal_rank, MAP: _average_precision}[column](predicted, labels)
    known = ~np.isnan(values)
    return np.stack([np.where(known, values, 0), known], axis=1, dtype=np.float64)


def _ndcg(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[groups] nDCG of each group; NaN where no label is above 0."""
    gains, ideal = (_gain(values, labels) for values in (predicted, labels["label"]))
    return np.divide(gains, ideal, out=np.full(len(ideal), np.nan), where=ideal > 0)


def _gain(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[groups] discounted cumulative gain of each group, its rows in descending order of `values`."""
    order, group, rank = _ranking(values, labels)
    first, last = _tied(values[order], group)
    discounts = ranks.discount(rank[first], last - first + 1)
    return np.bincount(group, weights=np.maximum(labels["label"][order], 0) * discounts)


def _reciprocal_rank(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[groups] reciprocal rank of each group; NaN where no label is above 0."""
    order, group, rank = _ranking(predicted, labels)
    first, last = _tied(predicted[order], group)
    relevant = labels["label"][order] > 0
    until = relevant.cumsum()
    groups, best = np.unique(group[relevant], return_index=True)
    best = np.flatnonzero(relevant)[best]  # the row of each group
    start, end = first[best], last[best]
    result = np.full(group.max() + 1, np.nan)
    result[groups] = ranks.reciprocal(rank[start], end - start + 1, until[end] - until[best] + 1)
    return result


def _average_precision(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[groups] average precision of each group; NaN where no label is above 0."""
    order, group, rank = _ranking(predicted, labels)
    relevant = labels["label"][order] > 0
    total = np.bincount(group, relevant)
    before = total.cumsum() - total  # relevant rows of the groups before
    _, last = _tied(predicted[order], group)
    precision = (relevant.cumsum()[last] - before[group]) / (rank[last] + 1)
    summed = np.bincount(group, np.where(relevant, precision, 0))
    return np.divide(summed, total, out=np.full(len(total), np.nan), where=total > 0)


def _tied(values: np.ndarray, group: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last row of those with each row's value in its group. Rows are in order, as of `_ranking`."""
    new = (np.diff(group) != 0) | (np.diff(values) != 0)
    starts, ends = np.flatnonzero(np.append(True, new)), np.flatnonzero(np.append(new, True))
    number = np.append(0, new.cumsum())
    return starts[number], ends[number]


def _ranking(values: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows by group and descending value; the number of each row's group, from 0; and its rank there, from 0."""
    order = np.lexsort((-values, labels["group"]))
    _, group, counts = np.unique(labels["group"][order], return_inverse=True, return_counts=True)
    starts = np.cumsum(counts) - counts
    return order, group, np.arange(len(order)) - starts[group]


def chance(expected: Expected, labels: np.ndarray) -> float:
    """The mean over groups of the expected value of a metric for documents in random order, 0 to 1.

    labels: `[N]` of `GROUPED` or `JUDGED`.
    """
    values = [expected(gains, documents) for gains, documents in _groups(labels)]
    return float(np.mean(values)) if values else 0.0


def _groups(labels: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """The arguments of `Expected` for each group that counts."""
    everything = labels.dtype == JUDGED  # the documents of all rows are ranked for each query
    documents = len(np.unique(labels["document"])) if everything else 0
    order = np.argsort(labels["group"], kind="stable")
    starts = np.flatnonzero(np.diff(labels["group"][order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        gains = np.maximum(labels["label"][rows].astype(np.float64), 0)
        if everything:
            _, number = np.unique(labels["document"][rows], return_inverse=True)
            gains = np.array([gains[number == n].max() for n in range(number.max() + 1)])
        if gains.any():
            yield gains, documents or len(rows)


def expected_ndcg(gains: np.ndarray, documents: int) -> float:
    """Expected nDCG, 0 to 1, of documents with these gains [G]: see `Expected`."""
    discounts = 1 / np.log2(np.arange(min(TOP, documents)) + 2)
    best = np.sort(gains)[::-1][: len(discounts)]
    return float(gains.sum() / documents * discounts.sum() / (best @ discounts[: len(best)]))


def expected_reciprocal_rank(gains: np.ndarray, documents: int) -> float:
    """Expected reciprocal rank, 0 to 1, of documents with these gains [G]: see `Expected`."""
    return float(ranks.reciprocal(*(np.array([n]) for n in (0, documents, int((gains > 0).sum()))))[0])


def expected_recall(gains: np.ndarray, documents: int) -> float:
    """Expected recall, 0 to 1, of documents with these gains [G]: see `Expected`."""
    return min(TOP, documents) / documents


def expected_average_precision(gains: np.ndarray, documents: int) -> float:
    """Expected average precision, 0 to 1, of documents with these gains [G]: see `Expected`.

    At rank i, the expected share of relevant documents up to there, if the one at i is relevant, is
    `(1 + (i - 1) (R - 1) / (N - 1)) / i` for R relevant ones of N.
    """
    relevant, before = int((gains > 0).sum()), np.arange(documents)
    return float(np.mean((1 + before * (relevant - 1) / max(documents - 1, 1)) / (before + 1)))
