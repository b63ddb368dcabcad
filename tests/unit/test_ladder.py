"""With a budget: which target is tried next, and how much of its training there is time for."""

from __future__ import annotations

import itertools
import math

import pytest

from distill.ladder import LEAST_SHARE, next_speedup, share_of

EVERY = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0)


def climbed(candidates: tuple[float, ...], limit: float, first: float | None) -> dict[float, bool]:
    """Speedup -> whether it retains enough, for all that are tried, if those up to `limit` do."""
    tried: dict[float, bool] = {}
    while (speedup := next_speedup(candidates, tried, first)) is not None:
        assert speedup not in tried
        tried[speedup] = speedup <= limit
    return tried


@pytest.mark.parametrize(("count", "limit"), [*itertools.product(range(1, 7), (1.0, *EVERY))])
def test_finds_the_fastest_that_retains_enough_by_halving(count: int, limit: float) -> None:
    candidates = EVERY[:count]
    tried = climbed(candidates, limit, None)
    fits = [speedup for speedup in candidates if speedup <= limit]
    assert max((speedup for speedup, enough in tried.items() if enough), default=None) == max(fits, default=None)
    assert len(tried) <= math.ceil(math.log2(count + 1))


@pytest.mark.parametrize(("limit", "tried"), [(4.0, [4.0]), (3.0, [4.0, 3.0]), (2.0, [4.0, 3.0, 2.0])])
def test_tries_the_wish_first_and_then_slower_ones(limit: float, tried: list[float]) -> None:
    assert list(climbed((2.0, 3.0, 4.0), limit, 4.0)) == tried


def test_tries_nothing_that_is_no_faster_than_the_teacher_itself() -> None:
    assert next_speedup((2.0, 3.0), {3.1: True}, 3.0) is None
    assert next_speedup((2.0, 3.0, 4.0), {3.1: True}, None) == 4.0


@pytest.mark.parametrize(
    ("estimated", "left", "share"),
    [(60.0, 120.0, 1.0), (100.0, 50.0, 0.5), (100.0, 100 * LEAST_SHARE - 1, 0.0), (10.0, -5.0, 0.0), (0.0, -5.0, 1.0)],
)
def test_trains_as_much_as_there_is_time_for(estimated: float, left: float, share: float) -> None:
    assert share_of(estimated, left) == share
