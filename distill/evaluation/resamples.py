"""Scores on resampled rows, for bootstrap intervals and tests: all resamples of all models at once.

A metric of a resample is computed from sums over the drawn rows (`metrics.Metric`), so that 10,000 resamples cost one
product of matrices: how often each row was drawn, times the row's share of each sum.

All models are scored on the same drawn rows (a paired bootstrap), so that rows that are hard for all cancel out in
differences and ratios. Rows of a group (a query, a text in words) are drawn together, and so are rows that share a text
(`evaluation.clusters`). Intervals are percentile intervals (Efron and Tibshirani 1993, An Introduction to the
Bootstrap, chapter 13). BCa intervals, which correct for skewness, differ from them in the second order only, and need
every score without each single row.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from distill.evaluation.metrics import METRICS

RESAMPLES = 10_000
LEVEL = 95.0
"""Percent of the resamples that an interval includes."""

Drawn = dict[str, np.ndarray]
"""Metric -> its value on each resample [resamples], in percent."""

_AT_ONCE = 2**22
"""Numbers of draws, of rows and resamples, that are in memory at once."""
_ROUNDING = 1e-9
"""Percentage points by which equal values may differ."""


def seed_of(task: str, split: str, seed: int = 0) -> list[int]:
    """Seed of the draws of a split. It depends on no other split, and no two splits share their draws."""
    return [seed, zlib.crc32(f"{task} {split}".encode())]


def units(labels: np.ndarray) -> int:
    """Number of what is drawn as a whole: rows, or the groups of rows of labels that have groups."""
    return len(labels if labels.dtype.names is None else np.unique(labels["group"]))


def drawn(
    names: Sequence[str],
    predictions: Mapping[str, np.ndarray],
    labels: np.ndarray,
    seed: int | Sequence[int] = 0,
    resamples: int = RESAMPLES,
    clusters: np.ndarray | None = None,
) -> dict[str, Drawn]:
    """Model -> metric -> its values on the resamples, which are the same rows for all models.

    Args:
        names: keys of `METRICS`. Raises KeyError for another name.
        predictions: model -> predictions `[N]` or `[N, K]`, as `distill.evaluation.metrics` takes them; at least one.
        labels: of the same N rows.
        resamples: how many there are.
        clusters: [N] number, from 0, of the part that each row is drawn with; None if each is drawn alone. Not for
            labels with groups.
    """
    columns = {name: [METRICS[name].columns(each, labels) for each in predictions.values()] for name in names}
    count = units(labels)
    parts = count if clusters is None else int(clusters.max()) + 1
    values = {model: {name: np.empty(resamples) for name in names} for model in predictions}
    for first, of_parts in _counts(parts, resamples, np.random.default_rng(seed), count):
        counts = of_parts if clusters is None else of_parts[:, clusters]
        for name, of_models in columns.items():
            for model, sums in zip(predictions, METRICS[name].sums(counts, of_models), strict=True):
                values[model][name][first : first + len(counts)] = 100 * METRICS[name].value(sums)
    return values


def _counts(
    units: int, resamples: int, random: np.random.Generator, rows: int | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """(number of the first resample, [r, units] how often each unit was drawn in each of the next r resamples).
    `rows`: numbers that each resample has in memory, if there are more than units."""
    at_once = max(1, _AT_ONCE // (rows or units))
    for first in range(0, resamples, at_once):
        count = min(at_once, resamples - first)
        chosen = random.integers(0, units, (count, units), np.int32 if units < 2**31 else np.int64)
        flat = (chosen + np.arange(count)[:, None] * units).ravel()
        yield first, np.bincount(flat, minlength=count * units).reshape(count, units).astype(np.float64)


def sums(
    columns: np.ndarray,
    seed: int | Sequence[int] = 0,
    resamples: int = RESAMPLES,
    clusters: np.ndarray | None = None,
) -> np.ndarray:
    """`[R, K]` sums of columns `[units, K]`, in float64, over the units that each of R resamples draws. `clusters`: as
    in `drawn`."""
    random = np.random.default_rng(seed)
    if clusters is not None:
        rows, columns = columns, np.zeros((int(clusters.max()) + 1, columns.shape[1]))
        np.add.at(columns, clusters, rows)
    return np.concatenate([counts @ columns for _, counts in _counts(len(columns), resamples, random)])


def interval(values: np.ndarray) -> tuple[float, float] | None:
    """95% percentile interval of values `[R]` on resamples; None if no value is finite. Other values do not count."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None
    low, high = np.percentile(finite, [50 - LEVEL / 2, 50 + LEVEL / 2])
    return float(low), float(high)


def with_width(ends: tuple[float, float] | None) -> tuple[float, float] | None:
    """An interval; None if its ends are equal. All resamples are alike where no row differs from others, such as those
    of a model that is right on all: how far other rows would differ is then not known, and not 0."""
    return None if ends is None or ends[1] - ends[0] < _ROUNDING else ends


def interval_of_ratios(values: np.ndarray) -> tuple[float, float] | None:
    """As `interval`, of ratios `[R]` that are NaN on the resamples whose denominator is not above 0.

    There the ratio has no bound, so that these count as the lowest and as the highest. None if an end is one of them:
    the interval then has no end.
    """
    if np.isfinite(values).all():
        return interval(values)
    ends = (
        np.percentile(np.where(np.isfinite(values), values, end), level, method="nearest")
        for end, level in ((-np.inf, 50 - LEVEL / 2), (np.inf, 50 + LEVEL / 2))
    )
    low, high = map(float, ends)
    return (low, high) if np.isfinite([low, high]).all() else None


def lower_end(values: np.ndarray) -> float | None:
    """Lower end of the one-sided 95% percentile interval of values `[R]`. Values that are not finite count as the
    lowest; None if the end is one of them."""
    low = np.percentile(np.where(np.isfinite(values), values, -np.inf), 100 - LEVEL, method="lower")
    return float(low) if np.isfinite(low) else None


def p_value(differences: np.ndarray) -> float:
    """Two-sided p of no difference, from paired differences `[R]` on resamples.

    It is 1 minus the level of the widest percentile interval without 0. It is never 0, because the observed rows count
    as one more resample (Davison and Hinkley 1997, Bootstrap Methods and their Application, section 4.2).
    """
    fewer = min((differences <= 0).sum(), (differences >= 0).sum())
    return float(min(1.0, 2 * (1 + fewer) / (1 + len(differences))))
