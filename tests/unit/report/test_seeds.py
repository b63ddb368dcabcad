"""Intervals over seeds and rows, against scipy and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t

from distill.report.seeds import over_seeds, shown


def test_without_noise_of_the_rows_it_is_that_of_the_mean() -> None:
    values = [91.0, 92.5, 93.1, 90.2]
    expected = t.interval(0.95, 3, np.mean(values), np.std(values, ddof=1) / 2)
    assert over_seeds(values, [(value, value) for value in values]) == pytest.approx(expected)


def test_one_run_has_its_own_interval() -> None:
    assert over_seeds([95.0], [[93.0, 96.5]]) == (93.0, 96.5)
    assert over_seeds([95.0], []) is None


def test_equal_runs_have_the_interval_of_the_rows() -> None:
    assert over_seeds([95.0, 95.0, 95.0], [[94.0, 96.0]] * 3) == pytest.approx((94.0, 96.0))


def test_there_is_no_interval_where_the_noise_of_the_rows_is_unknown() -> None:
    assert over_seeds([94.0, 96.0], [[93.0, 97.0], None]) is None
    assert over_seeds([94.0, 96.0], []) is None


def test_several_runs_are_shown_with_their_values_and_never_with_a_deviation() -> None:
    low, high = over_seeds([94.0, 96.0], [(93.0, 97.0)] * 2) or (0.0, 0.0)
    assert shown([94.0, 96.0], [(93.0, 97.0)] * 2) == f"95.0 [{low:.1f}, {high:.1f}] (94.0, 96.0)"
    assert shown([2.0, 4.0, 3.0], form=".2f", unit="x") == "3.00x (2.00, 4.00, 3.00)"
    assert shown([1.5], [(-1.0, 4.0)], "+.1f") == "+1.5 [-1.0, +4.0]"
    assert shown([float(n) for n in range(6)]) == "2.5 (0.0 to 5.0)"
    assert shown([]) == "-"
    assert shown([94.0, None, 96.0], [(93.0, 97.0)] * 2) == f"95.0 [{low:.1f}, {high:.1f}] (94.0, -, 96.0)"
    assert shown([None, 1.5]) == "1.5 (-, 1.5)"
    assert shown([None, None]) == "-"


@pytest.mark.parametrize("runs", [2, 3, 5])
def test_it_includes_the_truth_in_95_percent_of_the_simulations(runs: int) -> None:
    """Runs that share the noise of their rows, and each have noise of their own."""
    random, inside, count = np.random.default_rng(runs), 0, 3000
    rows, training = 1.0, 0.8
    for _ in range(count):
        values = 90 + random.normal(0, rows) + random.normal(0, training, runs)
        ends = [(value - 1.959964 * rows, value + 1.959964 * rows) for value in values]
        low, high = over_seeds(list(values), ends) or (0.0, 0.0)
        inside += low <= 90 <= high
    assert 0.93 <= inside / count <= 0.985
