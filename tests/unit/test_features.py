"""Captured features against the hidden states transformers itself returns."""

from __future__ import annotations

import pytest
import torch

from distill import family
from distill.features import capture


@pytest.mark.parametrize("name", sorted(family.FAMILIES))
@pytest.mark.parametrize("head", ["MaskedLM", "SequenceClassification"])
def test_hidden_is_what_the_model_returns(name: str, head: str, tiny_model, tiny_batch) -> None:
    model = tiny_model(name, head, layers=4)
    out = model(**family.inputs(model, tiny_batch), output_hidden_states=True)
    features = capture(model, tiny_batch, [0, 2, 3])
    assert sorted(features.hidden) == [0, 2, 3]
    for number, hidden in features.hidden.items():
        torch.testing.assert_close(hidden, out.hidden_states[number + 1], rtol=0, atol=0)
    assert features.mask is tiny_batch["attention_mask"]
    if head == "MaskedLM":
        assert features.logits is None
    else:
        torch.testing.assert_close(features.logits, out.logits, rtol=0, atol=0)


def test_gradients_flow_through_captured_features(tiny_model, tiny_batch) -> None:
    model = tiny_model("bert")
    capture(model, tiny_batch, [1]).hidden[1].sum().backward()
    reached = [any(p.grad is not None for p in layer.parameters()) for layer in family.layers(model)]
    assert reached == [True, True, False]


def test_no_hook_is_left_behind(tiny_model, tiny_batch) -> None:
    model = tiny_model("bert")
    capture(model, tiny_batch, [0, 1])
    with pytest.raises(ValueError, match="input_ids"):
        capture(model, {}, [0])
    assert not any(layer._forward_hooks for layer in family.layers(model))
