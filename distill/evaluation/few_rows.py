"""How much of its teacher's score a model may keep where the two differ on few rows, or on none.

Resamples have no losses but those that were seen, so that a bootstrap of few losses ends too early: of a student that
loses one of 162 rows it says that it keeps at least 98.1%, where the exact bound is 97.1%.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

import numpy as np
from scipy.special import betaincinv

from distill.evaluation.metrics import METRICS, Metric
from distill.evaluation.retained import Predictions
from distill.evaluation.significance import correct

LEVEL = 0.95
"""Of the one-sided bounds."""
FEWEST = 10
"""Rows, or other units that resamples draw, on which two models differ, at least, for a bootstrap of their scores."""


def margin_of(
    names: Sequence[str],
    same: Callable[[np.ndarray, np.ndarray], np.ndarray] | None,
    teacher: Predictions,
    student: Predictions,
    clusters: Mapping[tuple[str, str], np.ndarray],
) -> float | None:
    """Points by which a student's score of a task may be below the one that was observed, besides what a bootstrap
    shows. It is 0 where a score is no share of right rows and the models differ on `FEWEST` units; None where they
    differ on fewer: the bootstrap then shows too little, and no bound is known.

    Args:
        names: of the task's metrics.
        same: of its kind, see `TaskType.same`.
        teacher, student: of the task alone.
        clusters: as in `retained.drawn`.
    """
    labels = [each for _, each in teacher.values()]
    before, after = correct(same, teacher), correct(same, student)
    if before is not None and after is not None and _of_right_rows(names, labels[0]):
        return _of_score(names, np.concatenate(labels), before, after, _parts(teacher, clusters))
    both = ((key, student[key][0], *each) for key, each in teacher.items())
    units = sum(differing(names, ours, theirs, truth, clusters.get(key)) for key, ours, theirs, truth in both)
    return 0.0 if units >= FEWEST else None


def counts_right_rows(names: Sequence[str], labels: np.ndarray) -> bool:
    """Whether two models of different scores must differ in the rows that are right: answers that are wrong may share
    words with the right ones."""
    return labels.dtype != object and _of_right_rows(names, labels)


def _of_right_rows(names: Sequence[str], labels: np.ndarray) -> bool:
    """Whether a score falls with the share of right rows, in all or in single classes."""
    if labels.dtype == object:  # answers
        return "exact_match" in names
    return {*names} <= ({"accuracy", "f1_macro"} if labels.ndim == 1 else {"accuracy"})


def _parts(predictions: Predictions, clusters: Mapping[tuple[str, str], np.ndarray]) -> np.ndarray:
    """[n] number of the part of each row of all splits; each row without clusters is a part of its own."""
    parts, first = list[np.ndarray](), 0
    for key, (_, labels) in predictions.items():
        parts.append(first + clusters.get(key, np.arange(len(labels))))
        first = int(parts[-1].max()) + 1
    return np.concatenate(parts)


def _of_score(
    names: Sequence[str], labels: np.ndarray, before: np.ndarray, after: np.ndarray, parts: np.ndarray
) -> float:
    """`margin` of all rows or, where the score has the mean F1 of classes, of the class that may lose most: it counts
    as much as any other, however few rows it has."""
    most = margin(before, after, parts)
    if "f1_macro" not in names:
        return most
    classes = np.unique(labels)
    for each in classes:
        rows = labels == each
        share = fmean(1 / len(classes) if name == "f1_macro" else float(rows.mean()) for name in names)
        most = max(most, share * margin(before[rows], after[rows], parts[rows]))
    return most


def margin(before: np.ndarray, after: np.ndarray, parts: np.ndarray) -> float:
    """Points by which the share of rows on which a student is right may be below the observed one.

    The student loses rows on which the teacher is right, and gains others. Both shares have an exact one-sided bound
    (Clopper and Pearson 1934, Biometrika 26). The distances of the two from what was observed are combined by the root
    of the sum of their squares (Zou and Donner 2008, Statistics in Medicine 27), so that the bound is exact for a
    student that gains no row.

    Args:
        before, after: [n] whether the teacher is right on a row, and whether the student is.
        parts: [n] number of the part that each row is drawn with. A part with a lost row counts as lost.
    """
    lost, gained, right, wrong = (
        len(np.unique(parts[rows])) for rows in (before & ~after, after & ~before, before, ~before)
    )
    more = _upper(lost, right) - lost / max(right, 1)
    fewer = gained / max(wrong, 1) - _lower(gained, wrong)
    return 100 * math.hypot(more * float(before.mean()), fewer * float((~before).mean()))


def _upper(count: int, of: int) -> float:
    """Upper bound of a share of which `count` of a number were observed; 0 of none."""
    return float(betaincinv(count + 1, of - count, LEVEL)) if count < of else float(of > 0)


def _lower(count: int, of: int) -> float:
    return float(betaincinv(count, of - count + 1, 1 - LEVEL)) if count else 0.0


def differing(
    names: Sequence[str], a: np.ndarray, b: np.ndarray, labels: np.ndarray, parts: np.ndarray | None = None
) -> int:
    """Number of units, of those that resamples draw, on which two models add other values to a metric.

    Arguments are as in `resamples.drawn`.
    """
    units = np.flatnonzero(np.logical_or.reduce([_differ(METRICS[name], a, b, labels) for name in names]))
    return len(units if parts is None else np.unique(parts[units]))


def _differ(metric: Metric, a: np.ndarray, b: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[units]"""
    ours, theirs = (metric.columns(each, labels) for each in (a, b))
    # There are more columns for a model that outputs a class with a number beyond those of the other.
    differs: np.ndarray = (ours != theirs).any(axis=1) if ours.shape == theirs.shape else a != b
    return differs
