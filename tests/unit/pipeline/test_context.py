"""How much of a corpus is encoded: as much as the stages that run train on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from distill import config
from distill.config.plan import resolve
from distill.pipeline.context import Context


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        (["recipe=distilbert", "stages.pretrain.steps=7", "stages.adapt.steps=90"], 90),
        (["recipe=distilbert", "stages.pretrain.steps=7", "stages.adapt.steps=null"], None),
        (["recipe=factorized", "stages.pretrain.steps=7", "stages.adapt.steps=90"], 7),
        (["recipe=factorized", "stages.pretrain.steps=7", "stages.adapt.steps=null"], 7),
        (["recipe=task"], None),
    ],
)
def test_a_stage_that_the_pipeline_leaves_out_reads_no_corpus(settings: list[str], steps: int | None) -> None:
    """Its steps changed which texts the others trained on, and without a maximum all of them were encoded."""
    loaded = config.load_config(settings)
    run: Any = SimpleNamespace(config=loaded, plan=resolve(loaded))
    expected = None if steps is None else steps * 4096  # tokens of a step
    assert Context.corpus_tokens.fget(run) == expected  # type: ignore[attr-defined]
