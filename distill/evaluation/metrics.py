"""Metrics in numpy: one record for each, in `METRICS`.

A metric is a function of sums over rows, or over groups of rows. The score of a sample is its value for the sums over
all rows. The scores on 10,000 resamples are its values for sums in which each row counts as often as it was drawn
(`distill.evaluation.resamples`).

A metric takes predictions and labels of one form: class numbers `[N]`, numbers `[N]`, 0 and 1 for each label `[N, K]`,
codes of tags `[N]` with labels of `spans.TAGGED`, scores of documents `[N]` with labels of `task_type.GROUPED`, or the
values of `TaskType.grade` `[N, K]` for answers and for retrieval.

A metric is 0 where it is not defined: F1 without a positive prediction, or a correlation of a constant column.
scikit-learn does the same with a warning. Its own functions are not used, because they check their arguments for longer
than they compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from distill.data.task_types.spans import TAGGED, matched
from distill.errors import UserError
from distill.evaluation import rankings
from distill.runtime import outside

_IN_CACHE = 32
"""Resamples whose ranks are computed together."""


def products(counts: np.ndarray, columns: Sequence[np.ndarray]) -> list[np.ndarray]:
    """`[R, K]` sums of each of several columns `[units, K]`, by one product of matrices.

    counts: `[R, units]` how often each unit counts in each of R samples.
    """
    ends = np.cumsum([each.shape[1] for each in columns])[:-1]
    return np.split(counts @ np.concatenate(columns, axis=1), ends, axis=1)


@dataclass(frozen=True)
class Metric:
    """A metric as a function of sums over units. A unit is a row or, where labels have groups, a group of rows."""

    columns: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """(predictions, labels) -> `[units, K]` what each unit adds to each sum, in float64. Groups are in the order of
    their numbers."""
    value: Callable[[np.ndarray], np.ndarray]
    """`[R, S]` sums -> `[R]` the metric, at most 1, and 0 where it is not defined."""
    chance: Callable[[np.ndarray], float] | None = None
    """Labels -> the best value without skill, see `distill.evaluation.chance`. Where it is None, constant predictions
    are tried. A metric of rankings needs its own, because a constant prediction has no order."""
    sums: Callable[[np.ndarray, Sequence[np.ndarray]], Sequence[np.ndarray]] = products
    """(counts `[R, units]`, columns of each model) -> `[R, S]` sums of each model."""

    def __call__(self, predicted: np.ndarray, labels: np.ndarray) -> float:
        """The metric of predictions `[N]` or `[N, K]` for labels of the same rows, at most 1."""
        columns = self.columns(predicted, labels)
        (sums,) = self.sums(np.ones((1, len(columns))), [columns])
        return float(self.value(sums)[0])


def first_over_second(sums: np.ndarray) -> np.ndarray:
    """`[R]` the first of sums `[R, 2]` divided by the second; 0 where the second is 0."""
    return _ratio(sums[:, 0], sums[:, 1])


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.divide(above, below, out=np.zeros(np.broadcast(above, below).shape), where=below > 0)
    return result


def _stacked(*columns: np.ndarray) -> np.ndarray:
    return np.stack([column.astype(np.float64) for column in columns], axis=1)


def _by_group(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """[groups, K] sums of values [N, K] over the rows of each group."""
    _, number = np.unique(group, return_inverse=True)
    summed = [np.bincount(number, weights=column) for column in values.T]
    return np.stack(summed, axis=1)


def _right(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[units, 2] right predictions, and all. Of several labels, all must be right."""
    tagged = labels.dtype.names is not None
    same = predicted == (labels["label"] if tagged else labels)
    right = same if same.ndim == 1 else same.all(axis=1)
    columns = _stacked(right, np.ones(len(right)))
    return _by_group(columns, labels["group"]) if tagged else columns


def _positives(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[N, 2] the parts of F1, which is their ratio: twice the true positives, and predicted plus true positives."""
    ours, true = (values.reshape(len(values), -1).astype(np.int64) for values in (predicted, labels))
    return _stacked(2 * (ours & true).sum(axis=1), (ours + true).sum(axis=1))


def _positives_of_class_1(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return _positives(predicted == 1, labels == 1)


def _one_hot(values: np.ndarray, classes: int) -> np.ndarray:
    return (values[:, None] == np.arange(classes)).astype(np.float64)


def _classes(predicted: np.ndarray, labels: np.ndarray) -> int:
    return int(max(predicted.max(), labels.max())) + 1


def _positives_by_class(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[N, 1 + 2 C] 0 if the texts have classes and 1 if they have labels; then twice the true positives of each class,
    and its predicted and true positives."""
    several = float(labels.ndim == 2)
    if labels.ndim == 1:
        classes = _classes(predicted, labels)
        predicted, labels = _one_hot(predicted, classes), _one_hot(labels, classes)
    flag = np.full((len(labels), 1), several)
    return np.concatenate([flag, 2.0 * predicted * labels, predicted + labels], axis=1)


def _mean_f1(sums: np.ndarray) -> np.ndarray:
    both, either = np.split(sums[:, 1:], 2, axis=1)
    # As in scikit-learn, only classes that occur or are predicted count. Of several labels, all count.
    counted = np.where(sums[:, :1] > 0, True, either > 0)
    return _ratio(_ratio(both, either).sum(axis=1), counted.sum(axis=1))


def _confusion(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[N, 1 + 2 C] whether a row is right, its class, and its predicted class."""
    classes = _classes(predicted, labels)
    right = (predicted == labels).astype(np.float64)[:, None]
    return np.concatenate([right, _one_hot(labels, classes), _one_hot(predicted, classes)], axis=1)


def _matthews(sums: np.ndarray) -> np.ndarray:
    """Matthews correlation of any number of classes (Gorodkin 2004)."""
    of_true, of_predicted = np.split(sums[:, 1:], 2, axis=1)
    total, correct = of_true.sum(axis=1), sums[:, 0]
    by_both = [(each * other).sum(axis=1) for each, other in ((of_true, of_predicted), (of_true, of_true))]
    spread = (total**2 - (of_predicted**2).sum(axis=1)) * (total**2 - by_both[1])
    above = correct * total - by_both[0]
    return np.divide(above, np.sqrt(np.maximum(spread, 0)), out=np.zeros(len(above)), where=spread > 0)


def _spans(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[texts, 2] twice the spans in both; spans of the prediction and of the truth.

    A predicted span is correct if it has the first word, last word and type of a true span (Tjong Kim Sang and De
    Meulder 2003).
    """
    assert labels.dtype == TAGGED
    found = matched(predicted, labels["label"], labels["group"])
    both, ours, true = (np.bincount(part[:, 0], minlength=len(labels)) for part in found)
    return _by_group(_stacked(2 * both, ours + true), labels["group"])


def _graded(column: int, graded: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[N, 2] a value of each row from `TaskType.grade`, and 1."""
    return _stacked(graded[:, column], np.ones(len(graded)))


_CONSTANT = 1e-12
"""Variance, of values with variance 1 over all rows, below which a resample's values are constant but for rounding."""


def _standardized(values: np.ndarray) -> np.ndarray:
    """Values [N] with mean 0 and variance 1, so that their sums are precise; 0 for constant ones."""
    values = values.astype(np.float64)
    # Not by the standard deviation, which need not be 0: the mean of a constant column may be rounded.
    return np.zeros(len(values)) if np.ptp(values) == 0 else (values - values.mean()) / values.std()


def _moments(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    x, y = _standardized(predicted), _standardized(labels)
    return _stacked(np.ones(len(x)), x, y, x * x, y * y, x * y)


def _pearson(sums: np.ndarray) -> np.ndarray:
    x, y, xx, yy, xy = (sums[:, 1:] / sums[:, :1]).T
    of_x, of_y = xx - x * x, yy - y * y
    constant = (of_x <= _CONSTANT) | (of_y <= _CONSTANT)
    return np.where(constant, 0, np.clip((xy - x * y) / np.sqrt(np.where(constant, 1, of_x * of_y)), -1, 1))


class _Order:
    """The order of values [N]."""

    def __init__(self, values: np.ndarray) -> None:
        self._order = np.argsort(values, kind="stable")
        distinct, self._of_row = np.unique(values, return_inverse=True)
        self._first = np.searchsorted(values[self._order], distinct)

    def ranks(self, counts: np.ndarray) -> np.ndarray:
        """[N, R] rank of each row, minus the mean rank, in the resample in which it was drawn `counts` [N, R] times.

        Equal values share the mean of their ranks.
        """
        of_value = counts[self._order]
        if len(self._first) < len(self._order):
            of_value = np.add.reduceat(of_value, self._first, axis=0)
        ranks = of_value.cumsum(axis=0)
        drawn = ranks[-1].copy()  # other resamples of rows that are drawn together have other numbers of rows
        ranks -= (of_value - 1) / 2
        ranks -= (drawn + 1) / 2
        of_row: np.ndarray = ranks[self._of_row]
        return of_row


def _rank_products(counts: np.ndarray, columns: Sequence[np.ndarray]) -> list[np.ndarray]:
    """[R, 3] sums over rows of products of ranks, for each model: model and labels, model squared, labels squared.

    The mean rank is subtracted from ranks. They depend on all rows of a resample, so that these are no sums of columns.
    A few resamples are computed at a time, so that they stay in the processor's cache. Ranks are exact in float32, and
    the sums in float64.

    Args:
        counts: [R, N] how often each row counts.
        columns: [N, 2] predictions and labels of each model; the labels are the same for all.
    """
    labels, models = _Order(columns[0][:, 1]), [_Order(each[:, 0]) for each in columns]
    sums = np.empty((len(models), len(counts), 3))
    dot = partial(np.einsum, "nr,nr->r", dtype=np.float64)
    for first in range(0, len(counts), _IN_CACHE):
        part = np.ascontiguousarray(counts[first : first + _IN_CACHE].T, np.float32)
        y = labels.ranks(part)
        weighted = part * y
        of_y = dot(weighted, y)
        for model, order in zip(sums, models, strict=True):
            x = order.ranks(part)
            model[first : first + _IN_CACHE] = np.stack([dot(weighted, x), dot(part * x, x), of_y], axis=1)
    return list(sums)


def _correlation(sums: np.ndarray) -> np.ndarray:
    both, of_x, of_y = sums.T
    return np.clip(_ratio(both, np.sqrt(of_x * of_y)), -1, 1)


def _no_correlation(labels: np.ndarray) -> float:
    """Every constant predictor has a correlation of 0."""
    return 0.0


def _of_rankings(column: int, expected: rankings.Expected) -> Metric:
    return Metric(partial(rankings.columns, column), first_over_second, partial(rankings.chance, expected))


METRICS: dict[str, Metric] = {
    "accuracy": Metric(_right, first_over_second),
    "answer_f1": Metric(partial(_graded, 1), first_over_second),
    "exact_match": Metric(partial(_graded, 0), first_over_second),
    "f1": Metric(_positives_of_class_1, first_over_second),
    "f1_macro": Metric(_positives_by_class, _mean_f1),
    "f1_micro": Metric(_positives, first_over_second),
    "map": _of_rankings(rankings.MAP, rankings.expected_average_precision),
    "matthews": Metric(_confusion, _matthews, _no_correlation),
    "mrr_at_10": _of_rankings(rankings.MRR, rankings.expected_reciprocal_rank),
    "ndcg_at_10": _of_rankings(rankings.NDCG, rankings.expected_ndcg),
    "pearson": Metric(_moments, _pearson, _no_correlation),
    "recall_at_10": _of_rankings(rankings.RECALL, rankings.expected_recall),
    "span_f1": Metric(_spans, first_over_second),
    "spearman": Metric(_stacked, _correlation, _no_correlation, _rank_products),
}
"""Name -> metric. A metric that is added here is scored, resampled and compared with chance like the others."""
outside.registry("metrics", METRICS)


def score(names: Sequence[str], predicted: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Metric -> value in percent; a correlation times 100.

    Args:
        names: keys of `METRICS`. Raises KeyError for another name.
        predicted, labels: `[N]` or `[N, K]` of the same rows, in the form that the metrics take.
    """
    return {name: 100 * METRICS[name](predicted, labels) for name in names}


def finite(outputs: np.ndarray) -> np.ndarray:
    """The outputs `[N, C]`. Raises UserError if one of them is not finite."""
    broken = int((~np.isfinite(outputs)).any(axis=-1).sum())
    if broken:
        raise UserError(
            f"logits: got {broken} rows of {len(outputs)} with NaN or infinity; must be finite; "
            "training diverged or the scheme overflows: lower the learning rate or set precision"
        )
    return outputs
