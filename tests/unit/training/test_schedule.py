"""Learning-rate schedules against straight lines."""

from __future__ import annotations

import numpy as np
import pytest

from distill.training import schedule

SHAPES = [(100, 0.1), (20, 0.05), (7, 0.5), (10, 1.0), (1, 0.1), (1000, 0.0)]


def rising(total: int, warmup: float) -> int:
    return max(1, round(total * warmup)) if warmup else 0


@pytest.mark.parametrize(("total", "warmup"), SHAPES)
def test_linear(total: int, warmup: float) -> None:
    up = rising(total, warmup)
    # It reaches 1 in the last step of the warm-up, leaves it after the next, and would be 0 at `total`.
    wanted = np.interp(np.arange(total), [-1, up - 1, up, total], [0, 1, 1, 0])
    got = [schedule.linear(step, total, warmup=warmup) for step in range(total)]
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12)
    assert min(got) > 0  # no step is wasted
    assert schedule.linear(total, total, warmup=warmup) == 0 or warmup == 1
    assert schedule.linear(total + 5, total, warmup=warmup) == 0


@pytest.mark.parametrize(("total", "warmup"), SHAPES)
def test_constant(total: int, warmup: float) -> None:
    wanted = np.interp(np.arange(total), [-1, rising(total, warmup) - 1], [0, 1]) if warmup else np.ones(total)
    got = [schedule.constant(step, total, warmup=warmup) for step in range(total)]
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12)
