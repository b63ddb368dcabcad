"""Scores on resampled rows, for bootstrap intervals and tests: all resamples of all models at once.

A metric of a resample is computed from sums over the drawn rows (`SUMS`), so that 10,000 resamples cost one product of
matrices: how often each row was drawn, times the row's share of each sum. Only Spearman's correlation is not a function
of such sums, because ranks depend on all rows of a resample: it is computed from the numbers of draws directly.

All models are scored on the same drawn rows (a paired bootstrap), so that rows that are hard for all cancel out in
differences and ratios. Rows of a group (a query, a text in words) are drawn together. Intervals are percentile
intervals (Efron and Tibshirani 1993, An Introduction to the Bootstrap, chapter 13). BCa intervals, which correct for
skewness, differ from them in the second order only, and need every score without each single row.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from distill.data.task_types.spans import TAGGED, spans
from distill.evaluation import metrics

RESAMPLES = 10_000
LEVEL = 95.0
"""Percent of the resamples that an interval includes."""

Drawn = dict[str, np.ndarray]
"""Metric -> its value on each resample [resamples], in percent."""

SPEARMAN = "spearman"
"""The metric that is not a function of sums."""

_IN_CACHE = 32
"""Resamples whose ranks are computed together."""

_AT_ONCE = 2**22
"""Numbers of draws, of rows and resamples, that are in memory at once."""


@dataclass(frozen=True)
class Sums:
    """A metric as a function of sums."""

    columns: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """(predictions, labels) -> [units, K] what each row, or group, adds to each sum."""
    value: Callable[[np.ndarray], np.ndarray]
    """[R, K] sums -> [R] the metric, 0 to 1 or -1 to 1, and 0 where it is undefined."""


def seed_of(task: str, split: str, seed: int = 0) -> list[int]:
    """Seed of the draws of a split: it depends on no other split, and no two splits share their draws."""
    return [seed, zlib.crc32(f"{task} {split}".encode())]


def drawn(
    names: Sequence[str],
    predictions: Mapping[str, np.ndarray],
    labels: np.ndarray,
    seed: int | Sequence[int] = 0,
    resamples: int = RESAMPLES,
) -> dict[str, Drawn]:
    """Model -> metric -> its values on the resamples, which are the same rows for all models.

    Args:
        names: of the metrics.
        predictions: model -> predictions, as `distill.evaluation.metrics` takes them.
        labels: of the rows.
    """
    parts: dict[tuple[str, str], np.ndarray] = {}
    for model, predicted in predictions.items():
        for name in names:
            if name != SPEARMAN:
                parts[model, name] = SUMS[name].columns(predicted, labels).astype(np.float64)
    units = len(labels if labels.dtype.names is None else np.unique(labels["group"]))
    ends = np.cumsum([0, *(part.shape[1] for part in parts.values())])
    columns = np.concatenate([np.zeros((units, 0)), *parts.values()], axis=1)
    orders = {model: _Order(predicted) for model, predicted in predictions.items() if SPEARMAN in names}
    values = {model: {name: np.empty(resamples) for name in names} for model in predictions}
    for first, counts in _counts(units, resamples, np.random.default_rng(seed)):
        here, sums = slice(first, first + len(counts)), counts @ columns
        for (model, name), start, end in zip(parts, ends, ends[1:], strict=False):
            values[model][name][here] = 100 * SUMS[name].value(sums[:, start:end])
        if orders:
            for model, correlations in _spearman(counts, orders, _Order(labels)).items():
                values[model][SPEARMAN][here] = 100 * correlations
    return values


def _counts(units: int, resamples: int, random: np.random.Generator) -> Iterator[tuple[int, np.ndarray]]:
    """(number of the first resample, [r, units] how often each unit was drawn in each of the next r resamples)."""
    at_once = max(1, _AT_ONCE // units)
    for first in range(0, resamples, at_once):
        count = min(at_once, resamples - first)
        chosen = random.integers(0, units, (count, units), np.int32 if units < 2**31 else np.int64)
        flat = (chosen + np.arange(count)[:, None] * units).ravel()
        yield first, np.bincount(flat, minlength=count * units).reshape(count, units).astype(np.float64)


def sums(columns: np.ndarray, seed: int | Sequence[int] = 0, resamples: int = RESAMPLES) -> np.ndarray:
    """[R, K] sums of columns [units, K] over the units of each resample."""
    random = np.random.default_rng(seed)
    return np.concatenate([counts @ columns for _, counts in _counts(len(columns), resamples, random)])


def interval(values: np.ndarray) -> tuple[float, float] | None:
    """95% percentile interval of values [R] on resamples; values that are not finite do not count. None without any."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None
    low, high = np.percentile(finite, [50 - LEVEL / 2, 50 + LEVEL / 2])
    return float(low), float(high)


def p_value(differences: np.ndarray) -> float:
    """Two-sided p of no difference, of paired differences [R] on resamples: 1 minus the level of the widest percentile
    interval without 0. It is never 0, because the observed rows count as one more resample (Davison and Hinkley 1997,
    Bootstrap Methods and their Application, section 4.2).
    """
    fewer = min((differences <= 0).sum(), (differences >= 0).sum())
    return float(min(1.0, 2 * (1 + fewer) / (1 + len(differences))))


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.divide(above, below, out=np.zeros(np.broadcast(above, below).shape), where=below > 0)
    return result


def _first_over_second(sums: np.ndarray) -> np.ndarray:
    return _ratio(sums[:, 0], sums[:, 1])


def _stacked(*columns: np.ndarray) -> np.ndarray:
    return np.stack([column.astype(np.float64) for column in columns], axis=1)


def _by_group(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """[groups, K] sums of values [N, K] over the rows of each group."""
    _, number = np.unique(group, return_inverse=True)
    summed = [np.bincount(number, weights=column) for column in values.T]
    return np.stack(summed, axis=1)


def _accuracy(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    tagged = labels.dtype.names is not None
    same = predicted == (labels["label"] if tagged else labels)
    right = same if same.ndim == 1 else same.all(axis=1)
    columns = _stacked(right, np.ones(len(right)))
    return _by_group(columns, labels["group"]) if tagged else columns


def _twice_both_and_either(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[N, 2] what F1 is the ratio of: twice the true positives; predicted and true positives."""
    ours, true = (values.reshape(len(values), -1).astype(np.int64) for values in (predicted, labels))
    return _stacked(2 * (ours & true).sum(axis=1), (ours + true).sum(axis=1))


def _f1(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return _twice_both_and_either(predicted == 1, labels == 1)


def _one_hot(values: np.ndarray, classes: int) -> np.ndarray:
    return (values[:, None] == np.arange(classes)).astype(np.float64)


def _classes(predicted: np.ndarray, labels: np.ndarray) -> int:
    return int(max(predicted.max(), labels.max())) + 1


def _f1_by_class(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
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
    # Of classes, only those that occur or are predicted count; of labels, all.
    counted = np.where(sums[:, :1] > 0, True, either > 0)
    return _ratio(_ratio(both, either).sum(axis=1), counted.sum(axis=1))


def _confusion(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[N, 1 + 2 C] whether a row is right, its class, and its predicted class."""
    classes = _classes(predicted, labels)
    right = (predicted == labels).astype(np.float64)[:, None]
    return np.concatenate([right, _one_hot(labels, classes), _one_hot(predicted, classes)], axis=1)


def _matthews(sums: np.ndarray) -> np.ndarray:
    of_true, of_predicted = np.split(sums[:, 1:], 2, axis=1)
    total, correct = of_true.sum(axis=1), sums[:, 0]
    by_both = [(each * other).sum(axis=1) for each, other in ((of_true, of_predicted), (of_true, of_true))]
    spread = (total**2 - (of_predicted**2).sum(axis=1)) * (total**2 - by_both[1])
    above = correct * total - by_both[0]
    return np.divide(above, np.sqrt(np.maximum(spread, 0)), out=np.zeros(len(above)), where=spread > 0)


_CONSTANT = 1e-12
"""Variance, of values with variance 1 over all rows, below which a resample's values are constant but for rounding."""


def _standardized(values: np.ndarray) -> np.ndarray:
    """Values [N] with mean 0 and variance 1, so that their sums are precise; 0 for constant ones."""
    values = values.astype(np.float64)
    return np.zeros(len(values)) if np.ptp(values) == 0 else (values - values.mean()) / values.std()


def _products(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    x, y = _standardized(predicted), _standardized(labels)
    return _stacked(np.ones(len(x)), x, y, x * x, y * y, x * y)


def _pearson(sums: np.ndarray) -> np.ndarray:
    x, y, xx, yy, xy = (sums[:, 1:] / sums[:, :1]).T
    of_x, of_y = xx - x * x, yy - y * y
    varied = (of_x > _CONSTANT) & (of_y > _CONSTANT)
    below = np.sqrt(np.where(varied, of_x * of_y, 1))
    return np.where(varied, np.clip((xy - x * y) / below, -1, 1), 0)


def _of_groups(column: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The columns of a mean over groups of a metric of rankings: see `metrics.of_groups`."""

    def columns(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
        values = metrics.of_groups(column, predicted, labels)
        known = ~np.isnan(values)
        return _stacked(np.where(known, values, 0), known)

    return columns


def _graded(column: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The columns of a mean over rows of one of the values of `Kind.grade`."""
    return lambda graded, labels: _stacked(graded[:, column], np.ones(len(graded)))


def _spans(predicted: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[texts, 2] twice the spans in both; spans of the prediction and of the truth."""
    assert labels.dtype == TAGGED
    group, words = labels["group"], len(labels)
    ours, true = spans(predicted, group), spans(labels["label"], group)
    at = np.full((words, 2), -1)
    at[true[:, 0]] = true[:, 1:]
    shared = ours[(at[ours[:, 0]] == ours[:, 1:]).all(axis=1)]
    both, of_ours, of_true = (np.bincount(part[:, 0], minlength=words) for part in (shared, ours, true))
    return _by_group(_stacked(2 * both, of_ours + of_true), group)


SUMS: dict[str, Sums] = {
    "accuracy": Sums(_accuracy, _first_over_second),
    "answer_f1": Sums(_graded(1), _first_over_second),
    "exact_match": Sums(_graded(0), _first_over_second),
    "f1": Sums(_f1, _first_over_second),
    "f1_macro": Sums(_f1_by_class, _mean_f1),
    "f1_micro": Sums(_twice_both_and_either, _first_over_second),
    "matthews": Sums(_confusion, _matthews),
    "mrr_at_10": Sums(_of_groups(1), _first_over_second),
    "ndcg_at_10": Sums(_of_groups(0), _first_over_second),
    "pearson": Sums(_products, _pearson),
    "recall_at_10": Sums(_of_groups(2), _first_over_second),
    "span_f1": Sums(_spans, _first_over_second),
}
"""Metric -> the sums that it is a function of. A test compares each with `metrics.METRICS`."""


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
        ranks -= (of_value - 1) / 2
        ranks -= (len(counts) + 1) / 2
        of_row: np.ndarray = ranks[self._of_row]
        return of_row


def _spearman(counts: np.ndarray, models: Mapping[str, _Order], labels: _Order) -> dict[str, np.ndarray]:
    """Model -> [R] correlation of ranks, of rows that were drawn `counts` [R, N] times.

    A few resamples at a time, so that they stay in the processor's cache. Ranks are exact in float32.
    """
    values = {model: np.zeros(len(counts)) for model in models}
    for first in range(0, len(counts), _IN_CACHE):
        part = np.ascontiguousarray(counts[first : first + _IN_CACHE].T, np.float32)
        y = labels.ranks(part)
        weighted = part * y
        of_y = np.einsum("nr,nr->r", weighted, y)
        for model, order in models.items():
            x = order.ranks(part)
            both, of_x = np.einsum("nr,nr->r", weighted, x), np.einsum("nr,nr->r", part * x, x)
            below = np.sqrt(of_x * of_y, dtype=np.float64)
            correlations = np.divide(both, below, out=np.zeros(len(both)), where=below > 0)
            values[model][first : first + len(both)] = np.clip(correlations, -1, 1)
    return values
