"""Several runs that differ only in their seed: mean, standard deviation, and an interval over seeds and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

Z = 1.959964
"""Standard errors in half of a 95% interval."""


@dataclass(frozen=True)
class Seeds:
    """A value over n runs. Standard deviation and interval are None where they are unknown."""

    n: int
    mean: float
    deviation: float | None
    interval: tuple[float, float] | None


def over_seeds(values: Sequence[float], intervals: Sequence[Sequence[float] | None] = ()) -> Seeds:
    """The value of n runs, with the 95% interval of its mean.

    The variance of the mean has two parts. The part of training is the variance between the runs, divided by n. The
    part of the rows is not divided, because all runs are scored on the same rows: it is the mean of the runs' own
    variances, each from the width of the run's interval over rows. The half-width is from Student's t with the degrees
    of freedom of Welch and Satterthwaite (Satterthwaite 1946, An Approximate Distribution of Estimates of Variance
    Components), where the part of the rows, from thousands of resamples, has infinitely many.

    Args:
        values: of each run, at least one.
        intervals: [low, high] over rows of each run, 95%; without them, or with None, the rows count as fixed.
    """
    n, mean = len(values), fmean(values)
    given = [(high - low) / (2 * Z) for low, high in (ends for ends in intervals if ends is not None)]
    of_rows = fmean(error**2 for error in given) if len(given) == n else 0.0
    if n == 1:
        only = next(iter(intervals), None)
        return Seeds(1, mean, None, None if only is None else (only[0], only[1]))
    deviation = stdev(values)
    of_seeds = deviation**2 / n
    total = of_seeds + of_rows
    if total == 0:
        return Seeds(n, mean, deviation, (mean, mean))
    half = _quantile((n - 1) * (total / of_seeds) ** 2) if of_seeds else Z
    return Seeds(n, mean, deviation, (mean - half * sqrt(total), mean + half * sqrt(total)))


def _quantile(freedom: float) -> float:
    """The 97.5% quantile of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.975))
