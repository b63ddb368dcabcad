"""Intervals of ratios whose denominator is near 0, against Fieller's theorem and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from distill.evaluation.resamples import interval, interval_of_ratios
from distill.evaluation.retained import intervals


def drawn(mean: float, error: float, seed: int = 0) -> dict[str, dict[str, np.ndarray]]:
    return {"cola": {"matthews": np.random.default_rng(seed).normal(mean, error, 10_000)}}


def test_with_a_denominator_away_from_0_it_is_the_interval() -> None:
    values = np.random.default_rng(0).normal(95, 2, 1000)
    assert interval_of_ratios(values) == interval(values)


def test_resamples_without_a_ratio_count_at_both_ends() -> None:
    values = np.arange(1000.0)
    values[:10] = np.nan  # 1%: the interval is wider than that of the others, by 1% of them on either side
    low, high = interval_of_ratios(values) or (0.0, 0.0)
    assert (low, high) == pytest.approx((25, 984), abs=1)
    others = interval(values) or (0.0, 0.0)
    assert low < others[0]
    assert high > others[1]
    values[:26] = np.nan
    assert interval_of_ratios(values) is None
    assert interval_of_ratios(np.full(10, np.nan)) is None


@pytest.mark.parametrize("errors", [1.2, 1.8, 2.1, 4.0])
def test_it_has_no_end_where_that_of_fieller_has_none(errors: float) -> None:
    """Fieller's interval is bounded if the denominator is more than 1.96 standard errors above 0 (Fieller 1954, Some
    Problems in Interval Estimation)."""
    of_teacher = {"cola": {"matthews": 3.8}}
    student, teacher = drawn(3.0, 0.1, 1), drawn(3.8, 3.8 / errors)
    assert (intervals(student, teacher, of_teacher, ["cola"])[0] is not None) == (errors > 1.96)
    above = intervals(student, teacher, of_teacher, ["cola"], {"cola": {"matthews": 0.0}})[1]
    assert (above is not None) == (errors > 1.96)
