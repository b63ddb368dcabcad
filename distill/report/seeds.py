"""Several runs that differ only in their seed: an interval over rows and seeds, and how their values are shown."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev

Z = 1.959964
"""Standard errors in half of a 95% interval."""
FEW = 5
"""With at most this many runs the value of each is shown; with more, the lowest and the highest value."""


def over_seeds(values: Sequence[float], intervals: Sequence[Sequence[float] | None]) -> tuple[float, float] | None:
    """The 95% interval of the mean of n runs over rows and seeds; None where a run has no interval over rows.

    The variance of the mean has two parts. The part of training is the variance between the runs, divided by n. The
    part of the rows is not divided, because all runs are scored on the same rows: it is the mean of the runs' own
    variances, each from the width of the run's interval over rows. The half-width is from Student's t with the degrees
    of freedom of Welch and Satterthwaite (Satterthwaite 1946, An Approximate Distribution of Estimates of Variance
    Components), where the part of the rows, from thousands of resamples, has infinitely many. benchmarks/coverage.py
    compares its coverage with that of other intervals.

    Args:
        values: of each run, at least one.
        intervals: [low, high] over rows of each run, 95%. That of a single run is returned.
    """
    given = [(ends[0], ends[1]) for ends in intervals if ends is not None]
    n, mean = len(values), fmean(values)
    if len(given) < n:
        return None
    if n == 1:
        return given[0]
    from scipy.special import stdtrit

    of_rows = fmean(((high - low) / (2 * Z)) ** 2 for low, high in given)
    of_seeds = stdev(values) ** 2 / n
    total = of_seeds + of_rows
    half = float(stdtrit((n - 1) * (total / of_seeds) ** 2, 0.975)) if of_seeds else Z
    return mean - half * sqrt(total), mean + half * sqrt(total)


def shown(
    values: Sequence[float | None],
    intervals: Sequence[Sequence[float] | None] = (),
    form: str = ".1f",
    unit: str = "",
) -> str:
    """`MEAN [low, high] (values of the runs)`: the interval where it is known, the values of more than one run.

    A standard deviation of a few runs is never shown: of two runs, its own 95% interval begins at half of it and ends
    at 32 times as much.

    Args:
        values: in the order of the runs; None for a run without one, which is shown as `-`.
        intervals: as in `over_seeds`, of the runs with a value.
        form: format of each number.
        unit: after the mean.
    """
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    ends = over_seeds(known, intervals)
    interval = "" if ends is None else f" [{ends[0]:{form}}, {ends[1]:{form}}]"
    text = f"{fmean(known):{form}}{unit}{interval}"
    if len(values) == 1:
        return text
    many = len(values) > FEW
    each = (min(known), max(known)) if many else values
    return f"{text} ({(' to ' if many else ', ').join('-' if x is None else f'{x:{form}}' for x in each)})"
