"""The models over which speedups of pruned models are meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distill.compression.pruning.search import Shape
from distill.compression.pruning.target import Search, config_of
from distill.config import Target
from distill.config.schemes import Form
from distill.deploy.export import untrained
from tests import tiny


def search_over(folder: Path, teachers: list[Any], forms: list[Form], **settings: Any) -> Search:
    """A search for a tiny BERT of three labels, in these forms."""
    student = tiny.config("bert", num_labels=3)
    places = {"device": "cpu", "threads": 1, "folder": folder, "log": print}
    return untrained.search_in(Target(), forms, student, [], None, lambda: teachers, **places, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["gemma2", "qwen3"])
def test_a_teacher_is_timed_with_heads_of_its_own_size(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of Gemma and Qwen 3 is not the width over the number of heads."""
    built: list[Any] = []
    monkeypatch.setattr(untrained, "torch_run", lambda model, **_: built.append(model) or (lambda batch: np.zeros(1)))
    teacher = tiny.config(name, head_dim=32)
    search_over(tmp_path, [teacher], [untrained.TORCH]).references()
    (model,) = built
    assert model.model.layers[0].self_attn.q_proj.out_features == 2 * 32
    assert model.num_labels == 3
    assert teacher.vocab_size == 60, "a copy is changed"
    assert config_of(teacher, Shape(1, 16, 8)).head_dim == 32
    assert config_of(teacher, Shape(1, 8, 8)).head_dim == 8
