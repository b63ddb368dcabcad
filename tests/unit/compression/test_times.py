"""Times of all widths, from those of a few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest

from distill.compression.pruning.search import Shape
from distill.compression.pruning.times import (
    FFN_SIZES,
    HIDDEN_SIZES,
    OwnBatches,
    Timer,
    measure,
    screen,
    together,
)
from distill.config.schemes import Form
from distill.inference import latency
from distill.inference.runners import Runner

FORM = Form("onnxruntime", "int8", "onnxruntime")


def build(shape: Shape, forms: Sequence[Form]) -> dict[Form, Runner]:
    return {form: Known("", form.backend, form.scheme, lambda batch: np.zeros(1), shape) for form in forms}


@dataclass(frozen=True)
class Known(Runner):
    """A runner whose shape is known."""

    shape: Shape


class Times:
    """Times that are known, each group of models measured while the machine is slower by another factor."""

    busy = False

    def __init__(self, slower: Sequence[float]) -> None:
        self.factors, self.seen, self.few = iter(slower), list[Shape](), list[bool]()

    def __call__(self, runners: Sequence[Any], *, few: bool = False) -> dict[str, float]:
        factor = next(self.factors)
        self.seen += [runner.shape for runner in runners]
        self.few.append(few)
        assert len({runner.name for runner in runners}) == len(runners)
        return {runner.name: factor * cost(runner.shape, runner.backend) for runner in runners}


def cost(shape: Shape, backend: str = "onnxruntime") -> float:
    """OpenVINO takes longer for a call, and half as long for a layer."""
    if backend == "openvino":
        return 6.0 + (cost(shape) - 2.0) / 2
    return 2.0 + shape.hidden / 16 + shape.layers * shape.hidden * (4 * shape.hidden + 2 * shape.ffn) / 1e4


def test_times_between_the_sizes_that_are_timed_are_near_and_speeds_of_the_machine_cancel() -> None:
    hidden, ffn = [48 * n for n in range(1, 9)], [192 * n for n in range(1, 9)]
    times, forms = Times([1.0, 3.0, 0.5, 1.0]), [FORM, Form("openvino", "bf16")]
    found = measure(build, times, forms, hidden, ffn)
    assert len({shape.hidden for shape in times.seen}) == HIDDEN_SIZES
    assert len({shape.ffn for shape in times.seen}) == FFN_SIZES
    assert {shape.layers for shape in times.seen} == {1, 3}
    for width, inner, form in product(hidden, ffn, forms):
        for layers in (1, 6):
            shape = Shape(layers, width, inner)
            assert found[form].milliseconds(shape) == pytest.approx(cost(shape, form.backend), rel=0.02)


def test_many_forms_are_screened_on_four_models_each() -> None:
    hidden, ffn = [48 * n for n in range(1, 9)], [192 * n for n in range(1, 9)]
    times, forms = Times([1.0, 1.0]), [FORM, Form("openvino", "bf16")]
    found = screen(build, times, forms, hidden, ffn)
    assert {*times.seen} == {Shape(layers, *widths) for layers in (1, 3) for widths in ((48, 192), (384, 1536))}
    assert times.few == [True, True]
    for form in forms:
        for shape in (*{*times.seen}, Shape(6, 384, 1536), Shape(6, 48, 192)):
            assert found[form].milliseconds(shape) == pytest.approx(cost(shape, form.backend), rel=1e-6)
        for shape in (Shape(6, 192, 768), Shape(2, 240, 960)):
            assert found[form].milliseconds(shape) == pytest.approx(cost(shape, form.backend), rel=0.15)
        assert found[form].fixed.keys() == {*product(hidden, ffn)}


def test_widths_that_are_all_timed_are_exact() -> None:
    found = measure(build, Times([1.0]), [FORM], [32], [8, 24])[FORM]
    assert found.fixed.keys() == found.layer.keys() == {(32, 8), (32, 24)}
    assert found.milliseconds(Shape(5, 32, 24)) == pytest.approx(cost(Shape(5, 32, 24)))


def test_a_larger_model_is_never_predicted_to_be_faster() -> None:
    found = measure(build, Times([1.0] * 4), [FORM], range(16, 400, 16), range(8, 200, 8))[FORM]
    for (one, inner), ms in found.layer.items():
        assert all(ms <= more + 1e-12 for (other, f), more in found.layer.items() if other >= one and f >= inner)


def test_times_are_measured_on_all_batches() -> None:
    calls: list[int] = []

    def run(batch: Any) -> np.ndarray:
        calls.append(len(batch["input_ids"]))
        return np.zeros(1)

    ones = [{"input_ids": np.zeros((rows, 4), np.int64)} for rows in (2, 3)]
    times = Timer(ones, print, repeats=2, parts=5, least_ms=0.01)
    assert times([Runner("a", "torch", "fp32", run)])["a"] > 0
    assert {2, 3} <= {*calls}


def test_single_texts_are_timed_apart_and_take_the_median(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in results.json: the mean would follow the longest texts."""
    ones = [{"input_ids": np.zeros((1, length), np.int64)} for length in (4, 8, 250)]
    took = {"0": 1.0, "1": 3.0, "2": 100.0}
    monkeypatch.setattr(
        latency, "measure", lambda runners, inputs, **how: {("a", key): [took[key]] * 5 for key in inputs}
    )
    assert Timer(ones, print, apart=True)([Runner("a", "torch", "fp32", lambda batch: np.zeros(1))]) == {"a": 3.0}


def test_a_busy_screen_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "measure", lambda *given, **others: {("a", "0"): [1.0, 9.0]})
    times = Timer([], print)
    times([Runner("a", "torch", "fp32", lambda batch: np.zeros(1))], few=True)
    assert times.busy


def test_unsteady_times_are_repeated_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = iter([[1.0] * 4, [1.0, 5.0, 1.0, 9.0], [1.0, 2.0, 1.5, 3.0], [1.0, 4.0, 1.0, 4.0], [1.0, 9.0]])
    monkeypatch.setattr(latency, "measure", lambda *given, **others: {("a", "0"): next(tries)})
    told: list[str] = []
    times, runner = Timer([], told.append), Runner("a", "torch", "fp32", lambda batch: np.zeros(1))
    assert times([runner]) == {"a": 1.0}
    assert (times.busy, told) == (False, [])
    assert times([runner]) == {"a": 1.75}
    (line,) = told
    assert line.startswith("times vary by ")
    assert times.busy
    assert times([runner], few=True) == {"a": 5.0}, "few rounds are not repeated"


@pytest.mark.parametrize("apart", [False, True])
def test_a_reference_is_timed_on_batches_of_its_own(apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under whatever name, together with a model that is timed on those of all others."""
    ours, theirs = ([{"input_ids": np.zeros((1, length), np.int64)} for length in of] for of in ((4, 8), (5, 9)))
    given: list[Any] = []

    def measured(runners: Any, inputs: Any, **how: Any) -> latency.Times:
        given.append(inputs)
        return {(runner.name, key): [1.0] * 5 for runner in runners for key in inputs}

    monkeypatch.setattr(latency, "measure", measured)
    reference = OwnBatches("whole", "torch", "fp32", lambda batch: np.zeros(1), theirs)
    found, other = together(build, Timer(ours, print, apart=apart), [FORM], [Shape(1, 16, 8)], reference)
    assert (*found.values(), other) == (1.0, 1.0)
    (inputs,) = given
    groups = [[*of.values()] for of in inputs.values()]
    wanted = [[[theirs[n]], [ours[n]]] for n in range(2)] if apart else [[theirs, ours]]
    assert groups == wanted
