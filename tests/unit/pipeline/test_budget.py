"""With a budget: how much of a training there is time for."""

from __future__ import annotations

import pytest

from distill.pipeline.budget import LEAST_SHARE, share_of


@pytest.mark.parametrize(
    ("estimated", "left", "share"),
    [(60.0, 120.0, 1.0), (100.0, 50.0, 0.5), (100.0, 100 * LEAST_SHARE - 1, 0.0), (10.0, -5.0, 0.0), (0.0, -5.0, 1.0)],
)
def test_trains_as_much_as_there_is_time_for(estimated: float, left: float, share: float) -> None:
    assert share_of(estimated, left) == share
