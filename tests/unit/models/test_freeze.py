"""A language-model head that no term needs must be frozen: data-parallel training would wait for its gradients."""

from __future__ import annotations

from typing import Any

import pytest

from distill.models import families
from tests.tiny import SHAPES


@pytest.mark.parametrize("name", SHAPES)
def test_freezing_the_head_leaves_what_it_shares_with_the_encoder(tiny_model: Any, name: str) -> None:
    model = tiny_model(name)
    families.freeze_mlm_head(model)
    inside = {id(parameter) for parameter in families.encoder(model).parameters()}
    assert all(parameter.requires_grad == (id(parameter) in inside) for parameter in model.parameters())
    assert any(not parameter.requires_grad for parameter in model.parameters())
