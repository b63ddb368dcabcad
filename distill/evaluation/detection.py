"""How well a label is detected: areas under its curves, and recall at a fixed rate of false positives.

The rate is at most `FALSE_POSITIVES` percent of the development rows without the label, where the threshold is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from distill.data.task_types import TaskType
from distill.data.task_types.detecting import LARGEST, reached
from distill.evaluation.kind_results import Detection
from distill.evaluation.record import Interval

FALSE_POSITIVES = 1
"""Percent of the development rows without a label that may reach its threshold."""

_ABOVE = 1e-3
"""Distance in log-odds of a threshold that no development row reaches from the largest of them."""

FEWEST = 10
"""Rows with and without a label, at least, for an interval of its area."""

_Z = 1.959964
"""The 97.5th percentile of the normal distribution."""

Curve = tuple[np.ndarray, np.ndarray, np.ndarray]
"""`[k]` each: the different log-odds in descending order, and the rows with and without the label that reach them."""

Rows = tuple[np.ndarray, np.ndarray]
"""Log-odds [n] of a label, and whether a row has it [n]."""


def of_labels(kind: TaskType, labels: Sequence[str], outputs: np.ndarray, truth: np.ndarray) -> dict[str, Rows]:
    """Label -> its rows; empty for kinds of tasks and numbers of classes that are not detected.

    Args:
        outputs: `[n, outputs]`.
        truth: class numbers `[n]`, or 0 and 1 `[n, labels]`.
    """
    if kind.detecting is None:
        return {}
    odds = kind.detecting.odds(outputs, labels)
    flags = truth[:, None] == np.arange(len(labels)) if truth.ndim == 1 else truth == 1
    return {label: (odds[label], flags[:, number]) for number, label in enumerate(labels) if label in odds}


def described(reported: Rows, development: Rows | None) -> Detection:
    """The detection of a label, as in results.json. `development`: the rows on which its threshold is chosen."""
    odds, truth = reported
    positives = int(truth.sum())
    negatives = len(truth) - positives
    chosen = None if development is None else threshold(*development)
    flags = np.zeros(0, np.bool_) if chosen is None else reached(odds, chosen)
    areas = curve(odds, truth) if positives and negatives else None
    return Detection(
        positives=positives,
        negatives=negatives,
        roc_auc=None if areas is None else 100 * roc_auc(areas),
        average_precision=None if areas is None else 100 * average_precision(areas),
        threshold=chosen,
        chosen_on=0 if development is None else int((~development[1]).sum()),
        recall=100 * float(flags[truth].mean()) if flags.size and positives else None,
        false_positives=100 * float(flags[~truth].mean()) if flags.size and negatives else None,
        roc_auc_ci95=None if areas is None else area_interval(reported),
        recall_ci95=share_interval(flags[truth]) if flags.size and positives else None,
        false_positives_ci95=share_interval(flags[~truth]) if flags.size and negatives else None,
    )


def every(
    parts: Mapping[str, Sequence[Mapping[str, Rows]]], development: Mapping[str, Sequence[Mapping[str, Rows]]]
) -> dict[str, dict[str, Detection]]:
    """Task -> label -> detection on all rows of the task, without tasks that have no label to detect.

    parts, development: task -> what `of_labels` returns for each of its splits.
    """
    reported, chosen = ({task: _joined(each) for task, each in given.items()} for given in (parts, development))
    return {
        task: {label: described(rows, chosen.get(task, {}).get(label)) for label, rows in labels.items()}
        for task, labels in reported.items()
        if labels
    }


def _joined(parts: Sequence[Mapping[str, Rows]]) -> dict[str, Rows]:
    names = dict.fromkeys(chain.from_iterable(parts))
    split = {label: [part[label] for part in parts if label in part] for label in names}
    return {
        label: (np.concatenate([odds for odds, _ in rows]), np.concatenate([truth for _, truth in rows]))
        for label, rows in split.items()
    }


def threshold(odds: np.ndarray, truth: np.ndarray) -> float | None:
    """The lowest probability that at most `FALSE_POSITIVES` percent of the rows without the label reach.

    It lies halfway, in log-odds, to the next row below. None without a row without the label, and where it would lie
    beyond the log-odds that are told apart.

    odds: log-odds `[n]`; truth: `[n]` whether a row has the label.
    """
    negatives = int((~truth).sum())
    if negatives == 0:
        return None
    values, _, false = curve(np.clip(odds, -LARGEST, LARGEST), truth)
    below = int(np.searchsorted(false, negatives * FALSE_POSITIVES // 100, side="right"))
    limit = values[0] + _ABOVE if below == 0 else (values[below - 1] + values[below]) / 2
    return None if limit > LARGEST else float(1 / (1 + np.exp(-limit)))


def roc_auc(of: Curve) -> float:
    """Area under the curve of recall over false-positive rate, 0 to 1: the share of pairs of a row with the label and
    one without it that are in the right order, with half of the ties (Hanley and McNeil 1982).

    of: a curve of rows of which some have the label and some have not.
    """
    _, right, false = of
    return float((np.diff(false, prepend=0) * (right + np.r_[0, right[:-1]])).sum() / 2 / right[-1] / false[-1])


def area_interval(rows: Rows) -> Interval | None:
    """95% interval, in percent, of `roc_auc` in the population that the rows are drawn from.

    The variance is that of DeLong et al. 1988 (Biometrics 44). The interval is symmetric in the logit of the area, so
    that it lies within 0 and 100 (Pepe 2003, The Statistical Evaluation of Medical Tests, section 5.2). None with fewer
    than `FEWEST` rows with the label or without it, and where all pairs are in order, or none is: there the variance
    says nothing.
    """
    from scipy.stats import rankdata  # for which reports need not wait

    odds, truth = rows
    right, false = int(truth.sum()), int((~truth).sum())
    if min(right, false) < FEWEST:
        return None
    everywhere = rankdata(odds)
    # Of each row, the share of the other sort that it is in order with.
    of_right = (everywhere[truth] - rankdata(odds[truth])) / false
    of_false = 1 - (everywhere[~truth] - rankdata(odds[~truth])) / right
    area, variance = of_right.mean(), of_right.var(ddof=1) / right + of_false.var(ddof=1) / false
    if variance == 0 or not 0 < area < 1:
        return None
    ends = np.log(area / (1 - area)) + np.array([-_Z, _Z]) * np.sqrt(variance) / (area * (1 - area))
    low, high = 100 / (1 + np.exp(-ends))
    return float(low), float(high)


def share_interval(flags: np.ndarray) -> Interval:
    """95% interval, in percent, of the share of rows that have a flag `[n]`, where n is at least 1.

    It is that of Wilson 1927 (JASA 22), which does not shrink to a point where all rows have the flag, or none.
    """
    count, share = len(flags), float(flags.mean())
    middle, weight = share + _Z**2 / (2 * count), 1 + _Z**2 / count
    half = _Z * np.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2))
    return 100 * max(0.0, (middle - half) / weight), 100 * min(1.0, (middle + half) / weight)


def average_precision(of: Curve) -> float:
    """Mean precision over the steps in recall, 0 to 1, without interpolation: `sum (R_k - R_k-1) P_k`.

    of: a curve of rows of which some have the label.
    """
    _, right, false = of
    return float((np.diff(right, prepend=0) * (right / (right + false))).sum() / right[-1])


def curve(odds: np.ndarray, truth: np.ndarray) -> Curve:
    """The curve of log-odds `[n]`, and of whether a row has the label `[n]`."""
    values, place = np.unique(-odds, return_inverse=True)
    right, false = (np.bincount(place[part], minlength=len(values)).cumsum() for part in (truth, ~truth))
    return -values, right, false
