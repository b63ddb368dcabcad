"""A target that nothing meets is refused before anything is trained, where that can be said."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import BertConfig

from distill.compress.search import Table
from distill.config import load_config
from distill.errors import ConfigError
from distill.stages import prune

SIZES = {"vocab_size": 500, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """`check(recipe, *overrides)` of a tiny BERT, on a machine where every layer takes a millisecond."""

    def table(ctx: Any, name: str, config: Any, shapes: list[Any]) -> Table:
        widths = {(shape.hidden, shape.ffn) for shape in shapes}
        return Table(dict.fromkeys(widths, 0.5), dict.fromkeys(widths, 1.0))

    def call(recipe: str, *overrides: str) -> None:
        settings = load_config([f"recipe={recipe}", "target.speedup=null", *overrides])
        stage: Any = settings.stages["prune"]
        config = BertConfig(**SIZES, num_hidden_layers=4)
        prune.check_reach(SimpleNamespace(config=settings, folder=tmp_path), "prune", stage, config)  # type: ignore

    monkeypatch.setattr(prune, "_table", table)
    return call


def test_what_no_shape_meets_is_refused(check: Any) -> None:
    with pytest.raises(ConfigError, match=r"target\.latency_ms: got 1; must be >= 1\.50, which 1 layers, "):
        check("prune", "target.latency_ms=1")
    with pytest.raises(ConfigError, match=r"target\.speedup: got 5; must be <= 3\.00, which 1 layers, "):
        check("prune", "target.speedup=[2,5]")
    check("prune", "target.latency_ms=2")


def test_sizes_are_not_judged_before_a_vocabulary_is_cut(check: Any) -> None:
    with pytest.raises(ConfigError, match=r"target\.size_mib: got 0\.01; must be >= "):
        check("prune", "target.size_mib=0.01")
    check("distil_prune_int8", "target.size_mib=0.01")
    with pytest.raises(ConfigError, match=r"target\.latency_ms: got 1; must be >= 1\.50"):
        check("distil_prune_int8", "target.size_mib=0.01", "target.latency_ms=1")
