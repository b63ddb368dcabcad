"""Times of all widths, from those of a few."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from distill.compression.pruning.search import Shape
from distill.compression.pruning.times import FFN_SIZES, HIDDEN_SIZES, measure, steady, timer
from distill.inference.runners import Runner


def build(name: str, shape: Shape) -> Runner:
    return Runner(f"{name} {shape.layers} {shape.hidden} {shape.ffn}", "torch", "fp32", lambda batch: np.zeros(1))


def shape_of(runner: Runner) -> Shape:
    return Shape(*map(int, runner.name.split()[1:]))


def times_like(slower: Sequence[float], seen: list[Shape]) -> Any:
    """Times that are known, each group of models measured while the machine is slower by another factor."""
    factors = iter(slower)

    def times(runners: Sequence[Runner]) -> dict[str, float]:
        factor = next(factors)
        shapes = [shape_of(runner) for runner in runners]
        seen.extend(shapes)
        return {runner.name.split()[0]: factor * cost(shape) for runner, shape in zip(runners, shapes, strict=True)}

    return times


def cost(shape: Shape) -> float:
    return 2.0 + shape.hidden / 16 + shape.layers * shape.hidden * (4 * shape.hidden + 2 * shape.ffn) / 1e4


def test_times_between_the_sizes_that_are_timed_are_near_and_speeds_of_the_machine_cancel() -> None:
    hidden, ffn = [48 * n for n in range(1, 9)], [192 * n for n in range(1, 9)]
    seen: list[Shape] = []
    found = measure(build, times_like([1.0, 3.0, 0.5, 1.0], seen), hidden, ffn)
    assert len({shape.hidden for shape in seen}) == HIDDEN_SIZES
    assert len({shape.ffn for shape in seen}) == FFN_SIZES
    assert {shape.layers for shape in seen} == {1, 3}
    for width, inner in product(hidden, ffn):
        for layers in (1, 6):
            shape = Shape(layers, width, inner)
            assert found.milliseconds(shape) == pytest.approx(cost(shape), rel=0.02)


def test_widths_that_are_all_timed_are_exact() -> None:
    found = measure(build, times_like([1.0], []), [32], [8, 24])
    assert found.fixed.keys() == found.layer.keys() == {(32, 8), (32, 24)}
    assert found.milliseconds(Shape(5, 32, 24)) == pytest.approx(cost(Shape(5, 32, 24)))


def test_a_larger_model_is_never_predicted_to_be_faster() -> None:
    found = measure(build, times_like([1.0] * 4, []), range(16, 400, 16), range(8, 200, 8))
    for (one, inner), ms in found.layer.items():
        assert all(ms <= more + 1e-12 for (other, f), more in found.layer.items() if other >= one and f >= inner)


def test_times_are_measured_on_all_batches() -> None:
    calls: list[int] = []

    def run(batch: Any) -> np.ndarray:
        calls.append(len(batch["input_ids"]))
        return np.zeros(1)

    ones = [{"input_ids": np.zeros((rows, 4), np.int64)} for rows in (2, 3)]
    times = timer(ones, 5, repeats=2, least_ms=0.01, log=print)
    assert times([Runner("a", "torch", "fp32", run)])["a"] > 0
    assert {2, 3} <= {*calls}


def test_unsteady_times_are_repeated_and_reported() -> None:
    tries = iter([[1.0, 5.0, 1.0, 9.0], [1.0, 2.0, 1.5, 3.0], [1.0, 4.0, 1.0, 4.0], [1.0] * 4])
    told: list[str] = []
    assert steady(lambda: {("a", "x"): next(tries)}, told.append) == {"a": 1.75}
    (line,) = told
    assert line.startswith("times vary by ")
    assert steady(lambda: {("a", "x"): next(tries)}, told.append) == {"a": 1.0}
    assert len(told) == 1
