"""What a model without any skill scores: the best predictor that outputs the same for every row, or in random order.

A percentage of the teacher's score does not start at 0: on MRPC, whose rows are mostly paraphrases, the answer
"paraphrase" for every row reaches 68% accuracy and an F1 of 81%.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from distill.data.task_types.answers import NONE, grades
from distill.data.task_types.retrieval import JUDGED
from distill.data.task_types.task_type import GROUPED
from distill.evaluation import metrics, resamples, retained

CORRELATIONS = ("matthews", "pearson", "spearman")
"""Metrics that are 0 for every constant predictor."""
SHARE = 0.99
"""Share of the predictions from which one and the same prediction makes a model near-constant."""


def chance(names: Sequence[str], labels: np.ndarray) -> dict[str, float]:
    """Metric -> score in percent of the best predictor of that metric that does not depend on the text.

    Classes, tags of words and choices: the best of all. Several labels: the best of none, all, and each label alone;
    other combinations are not tried. Answers: the better of no answer and the whole context. Correlations: 0. Rankings:
    the expectation over all orders of a query's documents, since a constant predictor has no order.

    Args:
        labels: of one split, as metrics take them.
    """
    if labels.dtype in (GROUPED, JUDGED):
        return _of_random_orders(names, labels)
    constants = [] if set(names) <= {*CORRELATIONS} else _constants(labels)
    by_constant = [metrics.score(names, predicted, labels) for predicted in constants]
    return {name: max((score[name] for score in by_constant), default=0.0) for name in names}


def _constants(labels: np.ndarray) -> list[np.ndarray]:
    """The predictions of each constant predictor that is tried, as metrics take them."""
    if labels.dtype == object:
        whole = np.array([(0, len(context)) for context, _ in labels])
        return [grades(predicted, labels) for predicted in (np.full_like(whole, NONE), whole)]
    if labels.ndim == 2:
        width = labels.shape[1]
        rows = [np.zeros(width, np.int64), np.ones(width, np.int64), *np.eye(width, dtype=np.int64)]
        return [np.tile(row, (len(labels), 1)) for row in rows]
    values = labels if labels.dtype.names is None else labels["label"]
    return [np.full(len(values), value) for value in np.unique(values)]


def _of_random_orders(names: Sequence[str], labels: np.ndarray) -> dict[str, float]:
    """Metric -> mean over queries of its expectation, in percent; queries without a relevant document do not count."""
    everything = labels.dtype == JUDGED  # the documents of all rows are ranked for each query
    documents = len(np.unique(labels["document"])) if everything else 0
    values: dict[str, list[float]] = {name: [] for name in names}
    order = np.argsort(labels["group"], kind="stable")
    starts = np.flatnonzero(np.diff(labels["group"][order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        gains = np.maximum(labels["label"][rows].astype(np.float64), 0)
        if everything:
            _, number = np.unique(labels["document"][rows], return_inverse=True)
            gains = np.array([gains[number == n].max() for n in range(number.max() + 1)])
        if gains.any():
            for name in names:
                values[name].append(_EXPECTED[name](gains, documents or len(rows)))
    return {name: 100 * float(np.mean(each)) if each else 0.0 for name, each in values.items()}


def _ndcg(gains: np.ndarray, documents: int) -> float:
    """Expected nDCG@10 of `documents` in random order, of which the gains above 0 are among `gains`."""
    discounts = 1 / np.log2(np.arange(min(metrics.TOP, documents)) + 2)
    best = np.sort(gains)[::-1][: len(discounts)]
    return float(gains.sum() / documents * discounts.sum() / (best @ discounts[: len(best)]))


def _reciprocal_rank(gains: np.ndarray, documents: int) -> float:
    """Expected 1 / rank of the first relevant document among the first ten, and 0 if none is."""
    relevant, expected, none_before = int((gains > 0).sum()), 0.0, 1.0
    for rank in range(min(metrics.TOP, documents)):
        left = documents - rank
        expected += none_before * min(relevant / left, 1.0) / (rank + 1)
        none_before *= max(1 - relevant / left, 0.0)
    return expected


def _recall(gains: np.ndarray, documents: int) -> float:
    """Expected share of the relevant documents that are among the first ten."""
    return min(metrics.TOP, documents) / documents


_EXPECTED = {"ndcg_at_10": _ndcg, "mrr_at_10": _reciprocal_rank, "recall_at_10": _recall}


def of_tasks(labels: Mapping[tuple[str, str], np.ndarray], names: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Task -> metric -> score of the best constant predictor, with the keys of `retained.scores`.

    labels: (task, split) -> labels of a reported split.
    """
    result: dict[str, dict[str, float]] = {}
    for (task, split), of_split in labels.items():
        for metric, value in chance(names[task], of_split).items():
            result.setdefault(task, {})[retained.key(metric, split)] = value
    return result


def near_chance(teacher: retained.Scores, floor: retained.Scores) -> list[str]:
    """Tasks on which the 95% interval of the teacher's score includes chance, or is below it.

    Args:
        teacher: its scores on resamples, as from `retained.drawn`.
        floor: of the best constant predictors, as from `of_tasks`.
    """
    of_teacher, lowest = retained.tasks(teacher), retained.tasks(floor)
    ends = {task: resamples.interval(values) for task, values in of_teacher.items()}
    return [task for task, both in ends.items() if both is not None and both[0] <= lowest[task]]


def near_constant(predictions: retained.Predictions, without: Collection[str] = ()) -> list[str]:
    """Tasks on which at least `SHARE` of the predictions are the same, on every split.

    without: tasks whose predictions are often the same, such as tags of words, most of which are outside of spans.
    """
    by_task: dict[str, bool] = {}
    for (task, _), (predicted, _) in predictions.items():
        if task not in without:
            most = np.unique(predicted, axis=0, return_counts=True)[1].max()
            by_task[task] = by_task.get(task, True) and most >= SHARE * len(predicted)
    return [task for task, constant in by_task.items() if constant]
