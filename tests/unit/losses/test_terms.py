"""The terms of a stage on tasks of each kind."""

from __future__ import annotations

import pytest

from distill.config import Train, load_config
from distill.data.task_types import TASK_TYPES
from distill.data.task_types.embedding import SCALE
from distill.losses.terms import bound


@pytest.mark.parametrize("kind", TASK_TYPES)
def test_terms_with_a_teacher_are_as_heavy_as_the_scale_of_the_outputs_allows(kind: str) -> None:
    settings = load_config(["recipe=task", "stages.finetune.terms.soft_targets.weight=3"]).stages["finetune"]
    assert isinstance(settings, Train)
    weights = {name: term.weight for name, term in bound(settings.terms, TASK_TYPES[kind]).items()}
    if kind in ("embedding", "retrieval"):
        assert weights == pytest.approx({"soft_targets": 3 / SCALE, "vectors": 1.0, "supervised": 1.0})
    else:
        assert weights == {"soft_targets": 3.0, "supervised": 1.0}
