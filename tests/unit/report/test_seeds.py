"""Intervals over seeds and rows, against scipy and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t

from distill.report.seeds import over_seeds


def test_without_intervals_it_is_that_of_the_mean() -> None:
    values = [91.0, 92.5, 93.1, 90.2]
    found = over_seeds(values)
    expected = t.interval(0.95, 3, np.mean(values), np.std(values, ddof=1) / 2)
    assert (found.n, found.mean, found.deviation) == (4, np.mean(values), pytest.approx(np.std(values, ddof=1)))
    assert found.interval == pytest.approx(expected)


def test_one_run_has_its_own_interval() -> None:
    found = over_seeds([95.0], [[93.0, 96.5]])
    assert (found.n, found.deviation, found.interval) == (1, None, (93.0, 96.5))
    assert over_seeds([95.0]).interval is None


def test_equal_runs_have_the_interval_of_the_rows() -> None:
    found = over_seeds([95.0, 95.0, 95.0], [[94.0, 96.0]] * 3)
    assert found.deviation == 0
    assert found.interval == pytest.approx((94.0, 96.0))
    assert over_seeds([95.0, 95.0]).interval == (95.0, 95.0)


def test_an_interval_that_is_missing_leaves_out_the_rows() -> None:
    assert over_seeds([94.0, 96.0], [[93.0, 97.0], None]) == over_seeds([94.0, 96.0])


@pytest.mark.parametrize("runs", [2, 3, 5])
def test_it_includes_the_truth_in_95_percent_of_the_simulations(runs: int) -> None:
    """Runs that share the noise of their rows, and each have noise of their own."""
    random, inside, count = np.random.default_rng(runs), 0, 3000
    rows, training = 1.0, 0.8
    for _ in range(count):
        values = 90 + random.normal(0, rows) + random.normal(0, training, runs)
        ends = [(value - 1.959964 * rows, value + 1.959964 * rows) for value in values]
        low, high = over_seeds(list(values), ends).interval or (0.0, 0.0)
        inside += low <= 90 <= high
    assert 0.93 <= inside / count <= 0.985
