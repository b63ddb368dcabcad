"""Times of all widths, measured on real models."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from distill.compress.search import Shape
from distill.compress.times import _steady, measure
from distill.evaluate import latency

TINY = runpy.run_path(str(Path(__file__).parents[2] / "tiny.py"))


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_every_width_has_its_times(name: str) -> None:
    built: list[Shape] = []

    def config_of(shape: Shape) -> Any:
        built.append(shape)
        sizes = {"num_hidden_layers": shape.layers, "hidden_size": shape.hidden, "intermediate_size": shape.ffn}
        return TINY["config"](name, **sizes)

    widths = [(16, 8), (16, 24), (32, 8)]
    found = measure(config_of, widths, batch=(2, 16), scheme="fp32", device="cpu", threads=1, repeats=2)
    assert found.layer.keys() == found.fixed.keys() == set(widths)
    assert max(found.milliseconds(Shape(6, *pair)) for pair in widths) > 0
    assert {(shape.hidden, shape.ffn) for shape in built} == set(widths)
    assert {shape.layers for shape in built} == {1, 3}


def test_changes_of_the_machines_speed_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times that are known, each group of widths measured while the machine is slower by another factor."""
    slower = iter([1.0, 3.0, 1.0])

    def fake(runners: list[Any], batches: Any, *, repeats: int, least_ms: float) -> latency.Times:
        factor = next(slower)
        found = {}
        for runner in runners:
            layers = 3 if runner.name == "reference" else int(runner.name.split()[0])
            hidden, ffn = (48, 24) if runner.name == "reference" else shapes[runner.name]
            found[runner.name, (2, 16)] = [factor * (2.0 + hidden / 16 + layers * (hidden + ffn))] * repeats
        return found

    shapes: dict[str, tuple[int, int]] = {}

    def config_of(shape: Shape) -> Any:
        shapes[f"{shape.layers} {shape.ffn}"] = (shape.hidden, shape.ffn)
        sizes = {"num_hidden_layers": shape.layers, "hidden_size": shape.hidden, "intermediate_size": shape.ffn}
        return TINY["config"]("bert", **sizes)

    monkeypatch.setattr(latency, "measure", fake)
    widths = [(16, 8), (16, 24), (32, 8), (48, 24)]
    found = measure(config_of, widths, batch=(2, 16), scheme="fp32", device="cpu", threads=1, repeats=3)
    assert found.layer == pytest.approx({(h, f): h + f for h, f in widths})
    assert found.fixed == pytest.approx({(h, f): 2.0 + h / 16 for h, f in widths})


def test_unsteady_times_are_repeated_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = iter([[1.0, 5.0, 1.0, 9.0], [1.0, 2.0, 1.5, 3.0], [1.0, 4.0, 1.0, 4.0], [1.0] * 4])
    told: list[str] = []
    assert _steady(lambda: {("a", "x"): next(tries)}, told.append) == {("a", "x"): [1.0, 2.0, 1.5, 3.0]}
    (line,) = told
    assert line.startswith("times vary by ")
    assert _steady(lambda: {("a", "x"): next(tries)}, told.append) == {("a", "x"): [1.0] * 4}
    assert len(told) == 1
