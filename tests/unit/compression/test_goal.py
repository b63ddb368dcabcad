"""Expected costs against the table that they are interpolated from, and against scipy's interpolation, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.interpolate import RegularGridInterpolator

from distill.compression.pruning.goal import Cost, Excess, Goal
from distill.compression.pruning.search import Shape, Table

HIDDEN, FFN = (64, 128, 256, 384), (96, 512, 1536)


def table(scale: float = 1.0) -> Table:
    random = np.random.default_rng(3)
    layer = {(h, f): scale * 1e-5 * h * (4 * h + 2 * f) * (1 + 0.1 * random.random()) for h in HIDDEN for f in FFN}
    return Table({pair: 1.0 + 0.01 * pair[0] for pair in layer}, layer)


def sizes(layers: float, hidden: float, ffn: float) -> torch.Tensor:
    return torch.tensor([layers, hidden, ffn], dtype=torch.float32)


def test_costs_at_the_sizes_of_the_table_are_those_of_the_table() -> None:
    times, cost = table(), Cost([table()], 7.0)
    for layers in (1, 3, 6):
        for hidden, ffn in times.layer:
            expected = times.milliseconds(Shape(layers, hidden, ffn)) / 7.0
            assert cost(sizes(layers, hidden, ffn)).item() == pytest.approx(expected, rel=1e-5)


def test_costs_between_are_bilinear_and_their_slopes_too() -> None:
    times, cost = table(), Cost([table()], 1.0)
    parts = [
        RegularGridInterpolator((HIDDEN, FFN), np.array([[part[h, f] for f in FFN] for h in HIDDEN]))
        for part in (times.fixed, times.layer)
    ]

    def reference(layers: float, hidden: float, ffn: float) -> float:
        fixed, layer = (float(part((hidden, ffn))) for part in parts)
        return fixed + layers * layer

    random = np.random.default_rng(1)
    for point in zip(random.uniform(1, 6, 20), random.uniform(64, 384, 20), random.uniform(96, 1536, 20), strict=True):
        given = sizes(*point).requires_grad_()
        value = cost(given)
        assert value.item() == pytest.approx(reference(*point), rel=1e-5)
        value.backward()
        for axis in range(3):
            nearby = [list(point), list(point)]
            nearby[0][axis] -= 1e-3
            nearby[1][axis] += 1e-3
            slope = (reference(*nearby[1]) - reference(*nearby[0])) / 2e-3
            assert given.grad[axis].item() == pytest.approx(slope, rel=1e-2)


def test_costs_outside_are_those_of_the_nearest_sizes() -> None:
    times, cost = table(), Cost([table()], 1.0)
    assert cost(sizes(2, 10, 5000)).item() == pytest.approx(times.milliseconds(Shape(2, 64, 1536)), rel=1e-5)
    single = Cost([Table({(64, 96): 1.0}, {(64, 96): 2.0})], 1.0)
    assert single(sizes(2.5, 10, 96)).item() == pytest.approx(6.0)


def test_of_several_limits_the_hardest_counts() -> None:
    shapes = [Shape(1, 64, 96), Shape(6, 384, 1536)]
    times, at = table(), Shape(4, 256, 512)
    value = times.milliseconds(at)
    for most, other in ((value / 3, value), (value * 2, value)):
        excess = Excess(Goal(shapes, [([times], most), ([times], other)]))
        assert excess(sizes(4, 256, 512)).tolist() == pytest.approx([max(value / most, 1.0)], rel=1e-5)


def test_of_several_forms_the_fastest_counts() -> None:
    """One has a time of its own for each call, as OpenVINO has; the other is slower for each layer."""
    one, other = table(), table(3.0)
    calls = Table({pair: ms + 20.0 for pair, ms in one.fixed.items()}, one.layer)
    cost = Cost([calls, other], 1.0)
    found = [cost(sizes(*size)).item() for size in ((1, 64, 96), (6, 384, 1536))]
    wanted = [other.milliseconds(Shape(1, 64, 96)), calls.milliseconds(Shape(6, 384, 1536))]
    assert found == pytest.approx(wanted, rel=1e-5)


def test_without_limits_each_size_is_compared_with_that_of_the_shape() -> None:
    excess = Excess(Goal([Shape(2, 64, 96)]))
    assert excess(sizes(3, 64, 48)).tolist() == [1.5, 1.0, 0.5]
    assert Goal([Shape(2, 64, 512), Shape(3, 32, 96)]).least == Shape(2, 32, 96)
