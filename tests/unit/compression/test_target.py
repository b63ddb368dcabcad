"""A target that no shape meets is refused before training, where that is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig

from distill.compression.pruning.goal import Excess
from distill.compression.pruning.search import Losses, Shape, Table, distance, estimated, evenness
from distill.compression.pruning.target import CHECKS, NEAR, TIMES, Search
from distill.config import Prune, Target, load_config
from distill.config.plan import resolve
from distill.errors import ConfigError
from distill.pipeline.context.folder import RunFolder
from distill.pipeline.stages import shape_search
from distill.runtime.storage import atomic

SIZES = {"vocab_size": 500, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}


@pytest.fixture
def check(tmp_path: Path) -> Any:
    """`check(recipe, *overrides)` of a tiny BERT, on a machine where every layer takes a millisecond."""

    def call(recipe: str, *overrides: str) -> None:
        overridden = ["target.speedup=null", "target.shape=[8,128]", "target.scheme=fp32", *overrides]
        settings = load_config([f"recipe={recipe}", *overridden])
        machine = SimpleNamespace(device=torch.device("cpu"), threads=1, log=print)
        given = SimpleNamespace(teachers=[""], tokenizer=None)
        ctx: Any = SimpleNamespace(
            config=settings, plan=resolve(settings), machine=machine, folder=RunFolder(tmp_path), given=given
        )
        runtime: Any = SimpleNamespace(machine=machine, limit=settings.limit, longest=settings.tasks.max_length)
        config = BertConfig(**SIZES, num_hidden_layers=4)
        for step in ctx.plan.of(Prune):
            inputs = shape_search.search_inputs(ctx, step)
            search = shape_search.search_of(inputs, runtime, config)
            widths = [(shape.hidden, shape.ffn) for shape in search.shapes]
            times = {"fixed": [[h, f, 0.5] for h, f in widths], "layer": [[h, f, 1.0] for h, f in widths]}
            of = {"conditions": search.conditions, "model": "bert", "head": 8, "reference": 4.5}
            atomic.write_json(search.folder / TIMES, of | times)
            shape_search.check_reach(inputs, runtime, config)

    return call


def test_a_target_that_no_shape_meets_is_refused(check: Any) -> None:
    with pytest.raises(ConfigError, match=r"target\.latency_ms: got 1; must be >= 1\.50, which 1 layers, "):
        check("prune", "target.latency_ms=1")
    with pytest.raises(ConfigError, match=r"target\.speedup: got 5; must be <= 3\.00, which 1 layers, "):
        check("prune", "target.speedup=[2,5]")
    check("prune", "target.latency_ms=2")


def test_size_targets_are_not_checked_before_the_vocabulary_is_pruned(check: Any) -> None:
    with pytest.raises(ConfigError, match=r"target\.size_mib: got 0\.01; must be >= "):
        check("prune", "target.size_mib=0.01")
    check("distil_prune_int8", "target.size_mib=0.01")
    with pytest.raises(ConfigError, match=r"target\.latency_ms: got 1; must be >= 1\.50"):
        check("distil_prune_int8", "target.size_mib=0.01", "target.latency_ms=1")


WIDTHS = [(h, f) for h in (8, 16, 24, 32) for f in (16, 32, 48, 64)]
KNOWN = Losses(
    0.0,
    {4: 0.0, 3: 0.1, 2: 0.3, 1: 0.6},
    {h: 0.5 - h / 64 for h in (8, 16, 24, 32)},
    {f: 0.3 - f / 214 for f in (16, 32, 48, 64)},
    1.0,
)


def real(shape: Shape) -> float:
    """What a model takes: more than the table has it where it is narrow."""
    return table_of(shape) * (1.4 if shape.hidden < 32 else 1.0)


def table_of(shape: Shape) -> float:
    return 0.1 + shape.layers * shape.hidden * (shape.hidden + shape.ffn) / 3072


def search_in(folder: Path, told: list[str], *, checked: bool = True) -> Search:
    """A search of which all times are known; the reference takes as long as the unpruned model."""
    full = Shape(4, 32, 64)
    widths = {(h, f): table_of(Shape(1, h, f)) - 0.1 for h, f in WIDTHS}

    def times_of(runners: Any) -> dict[str, float]:
        return {name: table_of(full) if name == "reference" else real(Shape(*shape)) for name, *shape in runners}

    search = Search(
        BertConfig(**SIZES, num_hidden_layers=4),
        [Shape(layers, h, f) for layers in range(1, 5) for h, f in WIDTHS],
        lambda name, shape: (name, shape.layers, shape.hidden, shape.ffn),  # type: ignore[arg-type, return-value]
        list,
        times_of,  # type: ignore[arg-type]
        {"threads": 1},
        folder,
        checked,
        told.append,
    )
    search.__dict__["times"] = Table({pair: 0.1 for pair in widths}, widths, table_of(full))
    search.__dict__["_reference"] = ("reference",)
    return search


@pytest.mark.parametrize("speedup", [1.5, 2.0, 3.0])
def test_a_chosen_shape_is_timed_and_another_is_chosen_if_it_is_too_slow(speedup: float, tmp_path: Path) -> None:
    told: list[str] = []
    found = search_in(tmp_path, told).choice(Target(speedup=speedup), estimated([KNOWN]))
    shape = found.shape
    assert found.speed.predicted_ms == pytest.approx(real(shape))
    assert found.speed.predicted_speedup == pytest.approx(table_of(Shape(4, 32, 64)) / real(shape))
    assert found.speed.predicted_speedup >= speedup * (1 - NEAR)
    assert 1 <= len(told) <= CHECKS
    unchecked = search_in(tmp_path, [], checked=False).choice(Target(speedup=speedup), estimated([KNOWN]))
    assert unchecked.speed.predicted_speedup >= speedup, "as the table has it"
    assert KNOWN.margin_kept(unchecked.shape) >= KNOWN.margin_kept(shape)


def test_the_finalist_that_recovers_best_is_chosen(tmp_path: Path) -> None:
    tried: list[Shape] = []

    def trials(shapes: Sequence[Shape]) -> dict[Shape, float]:
        tried.extend(shapes)
        return {shape: -float(shape.layers) for shape in shapes}

    target = Target(speedup=2.0)
    found = search_in(tmp_path, [], checked=False).choice(target, estimated([KNOWN]), 5, trials)
    assert found.shape.layers == max(shape.layers for shape in tried)
    assert len({*tried}) == len({shape.layers for shape in tried}) > 1
    assert all(table_of(Shape(4, 32, 64)) / table_of(shape) >= 2.0 for shape in tried)
    untried = search_in(tmp_path, [], checked=False).choice(target, estimated([KNOWN]))
    assert untried.shape in tried


def test_the_whole_model_is_not_tried(tmp_path: Path) -> None:
    def trials(shapes: Sequence[Shape]) -> dict[Shape, float]:
        raise AssertionError(f"{shapes} were tried")

    found = search_in(tmp_path, [], checked=False).choice(Target(speedup=1.0), estimated([KNOWN]), 4, trials)
    assert found.shape == Shape(4, 32, 64)


def test_a_latency_is_met_by_the_model_that_was_timed(tmp_path: Path) -> None:
    found = search_in(tmp_path, []).choice(Target(latency_ms=1.5), estimated([KNOWN]))
    assert real(found.shape) == found.speed.predicted_ms <= 1.5 * (1 + NEAR)


def test_a_single_layer_is_chosen_only_where_nothing_else_is_fast_enough(tmp_path: Path) -> None:
    """Its estimate is the best here, as it is at high speedups, but such models recover less."""
    shallow = replace(KNOWN, layers={4: 0.0, 3: 0.0, 2: 0.0, 1: 0.0})
    search = search_in(tmp_path, [], checked=False)
    fastest = {
        depth: max(map(search.times.speedup, [s for s in search.shapes if s.layers >= depth])) for depth in (1, 2)
    }
    for speedup, layers in ((0.8 * fastest[2], 2), (0.9 * fastest[1], 1)):
        assert search.choice(Target(speedup=speedup), estimated([shallow])).shape.layers == layers


def test_a_goal_has_the_costs_that_the_target_limits(tmp_path: Path) -> None:
    search = search_in(tmp_path, [])
    whole, half = Shape(4, 32, 64), Shape(2, 16, 32)
    for target, cost, most in (
        (Target(speedup=2.0), table_of, table_of(whole) / 2.0),
        (Target(latency_ms=1.5), table_of, 1.5),
        (Target(size_mib=0.05), search.size, 0.05),
    ):
        excess = Excess(search.goal(target))
        for shape in (whole, half):
            sizes = torch.tensor([shape.layers, shape.hidden, shape.ffn], dtype=torch.float32)
            assert excess(sizes).tolist() == pytest.approx([cost(shape) / most], rel=1e-5)
    assert len(search.goal(Target(speedup=2.0, size_mib=0.05)).limits) == 2
    assert search.goal(Target(speedup=2.0)).least == Shape(1, 8, 16)


def test_gated_models_get_the_nearest_shape_that_meets_the_target(tmp_path: Path) -> None:
    expected = [{"layers": 2.9, "hidden": 17.0, "ffn": 60.0}, {"layers": 3.3, "hidden": 15.0, "ffn": 66.0}]
    search = search_in(tmp_path, [], checked=False)
    assert search.choice(Target(speedup=2.0), distance(expected)).shape == Shape(3, 16, 64)
    fast = search.choice(Target(speedup=6.0), distance(expected))
    meets = [shape for shape in search.shapes if search.times.speedup(shape) >= 6.0]
    assert fast.speed.predicted_speedup >= 6.0

    def off(shape: Shape) -> float:
        of_models = [(shape.layers / e["layers"], shape.hidden / e["hidden"], shape.ffn / e["ffn"]) for e in expected]
        return float(np.square(np.log(of_models)).sum())

    assert off(fast.shape) == pytest.approx(min(map(off, meets)))


def test_even_scaling_reduces_all_sizes_alike(tmp_path: Path) -> None:
    search = search_in(tmp_path, [], checked=False)
    assert search.choice(Target(speedup=6.5), evenness(search.full)).shape == Shape(2, 16, 32)
