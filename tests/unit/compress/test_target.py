"""A target that no shape meets is refused before training, where that is known."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import BertConfig

from distill import checkpoint
from distill.compress.target import TIMES
from distill.config import Prune, load_config
from distill.context.folder import RunFolder
from distill.errors import ConfigError
from distill.plan import resolve
from distill.stages import prune

SIZES = {"vocab_size": 500, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}


@pytest.fixture
def check(tmp_path: Path) -> Any:
    """`check(recipe, *overrides)` of a tiny BERT, on a machine where every layer takes a millisecond."""

    def call(recipe: str, *overrides: str) -> None:
        settings = load_config([f"recipe={recipe}", "target.speedup=null", *overrides])
        machine = SimpleNamespace(device=torch.device("cpu"), threads=1, float32="fp32", log=print)
        ctx: Any = SimpleNamespace(config=settings, plan=resolve(settings), machine=machine, folder=RunFolder(tmp_path))
        config = BertConfig(**SIZES, num_hidden_layers=4)
        for step in ctx.plan.of(Prune):
            search = prune.search_of(ctx, step, config)
            widths = [(shape.hidden, shape.ffn) for shape in search.shapes]
            times = {"fixed": [[h, f, 0.5] for h, f in widths], "layer": [[h, f, 1.0] for h, f in widths]}
            of = {"conditions": search.conditions, "model": "bert", "head": 8, "batch": [8, 128]}
            checkpoint.write_json(search.folder / TIMES, of | times)
            prune.check_reach(ctx, step, config)

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
