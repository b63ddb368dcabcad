"""The table of times holds what it is asked for, measured on real models."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from distill.compress.search import Shape
from distill.evaluate.table import measure

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
    assert all(value >= 0 for value in (*found.layer.values(), *found.fixed.values()))
    assert max(found.milliseconds(Shape(6, *pair)) for pair in widths) > 0
    assert {(shape.hidden, shape.ffn) for shape in built} == set(widths)
    assert {shape.layers for shape in built} == {1, 3}
