"""Captured features against the outputs of transformers, for every family, attention kernel and padding."""

from __future__ import annotations

import copy

import pytest
import torch

from distill.models import families
from distill.models.hooks import ATTENTION, capture

FAMILIES = sorted(families.STUDENTS)
LAYERS = (0, 1, 2, 3)


def kernel(model, name: str):
    model.set_attn_implementation(name)
    return model


def unpadded(batch):
    return batch | {
        "attention_mask": torch.ones_like(batch["attention_mask"]),
        "input_ids": batch["input_ids"].clamp(min=7),
    }


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("head", ["MaskedLM", "SequenceClassification"])
def test_hidden_states_equal_those_of_transformers(name: str, head: str, tiny_model, tiny_batch) -> None:
    model = tiny_model(name, head, layers=4)
    out = model(**families.inputs(model, tiny_batch), output_hidden_states=True)
    features = capture(model, tiny_batch, {"hidden": [-1, 0, 2, 3]})
    assert sorted(features.hidden) == [-1, 0, 2, 3]
    for number, hidden in features.hidden.items():
        torch.testing.assert_close(hidden, out.hidden_states[number + 1], rtol=0, atol=0)
    assert features.mask is tiny_batch["attention_mask"]
    assert all(getattr(features, name) == {} for name in ATTENTION)
    if head == "MaskedLM":
        assert features.logits is None
    else:
        torch.testing.assert_close(features.logits, out.logits, rtol=0, atol=0)


@pytest.mark.quick(9)
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("name", FAMILIES)
def test_scores_and_values_reproduce_the_attention_of_transformers(
    name: str, padded: bool, tiny_model, tiny_batch
) -> None:
    """Softmax of the scores equals transformers' attention; its product with the values is the layer's context."""
    batch = tiny_batch if padded else unpadded(tiny_batch)
    model = kernel(tiny_model(name, layers=4), "eager")
    record, attended = families.family_of(model), []
    handles = [
        layer.get_submodule(record.layer.attention_output).register_forward_pre_hook(
            lambda module, arguments: attended.append(arguments[0])
        )
        for layer in dict.fromkeys(families.layers(model))
    ]
    out = model(**families.inputs(model, batch), output_attentions=True)
    for handle in handles:
        handle.remove()
    features = capture(model, batch, dict.fromkeys(ATTENTION, LAYERS))
    real = batch["attention_mask"].bool()
    for number in LAYERS:
        expected = out.attentions[number]
        scores = features.scores[number]
        assert (
            features.queries[number].shape
            == features.keys[number].shape
            == features.values[number].shape
            == (2, 2, 7, 8)
        )
        assert scores.shape == expected.shape == (2, 2, 7, 7)
        visible = expected > 0
        assert not (visible & ~real[:, None, None, :])[real[:, None, :].expand(2, 2, 7)].any()
        ours = scores.masked_fill(~visible, -torch.inf).softmax(-1)
        rows = real[:, None, :].expand(2, 2, 7)
        torch.testing.assert_close(ours[rows], expected[rows], rtol=1e-4, atol=1e-5)
        context = (expected @ features.values[number]).transpose(1, 2).flatten(2)
        torch.testing.assert_close(context[real], attended[number][real], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in FAMILIES if "sdpa" in families.FAMILIES[name].attention])
def test_features_are_equal_for_every_attention_kernel(name: str, tiny_model, tiny_batch) -> None:
    model = tiny_model(name)
    needs = dict.fromkeys(("hidden", *ATTENTION), LAYERS[:3])
    eager, sdpa = (capture(kernel(model, k), tiny_batch, needs) for k in ("eager", "sdpa"))
    real = tiny_batch["attention_mask"].bool()
    for number in LAYERS[:3]:
        torch.testing.assert_close(eager.hidden[number][real], sdpa.hidden[number][real], rtol=1e-4, atol=1e-4)
        for field in ("queries", "keys", "values"):
            pair = (getattr(features, field)[number].transpose(1, 2)[real] for features in (eager, sdpa))
            torch.testing.assert_close(*pair, rtol=1e-4, atol=1e-4)
        pairs = (real[:, :, None] & real[:, None, :])[:, None].expand(2, 2, 7, 7)
        torch.testing.assert_close(eager.scores[number][pairs], sdpa.scores[number][pairs], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_last_kernel_of_a_record_is_the_default_of_transformers(name: str, tiny_model) -> None:
    best = families.FAMILIES[name].attention[-1]
    assert tiny_model(name).config._attn_implementation == best, "transformers takes the fastest there is"


def test_gradients_flow_through_captured_features(tiny_model, tiny_batch) -> None:
    model = tiny_model("bert")
    capture(model, tiny_batch, {"hidden": [1]}).hidden[1].sum().backward()
    reached = [any(p.grad is not None for p in layer.parameters()) for layer in families.layers(model)]
    assert reached == [True, True, False]


def test_hooks_are_removed(tiny_model, tiny_batch) -> None:
    model = tiny_model("bert")
    needs = dict.fromkeys(("hidden", *ATTENTION), LAYERS[:3])
    capture(model, tiny_batch, needs)
    with pytest.raises(ValueError, match="input_ids"):
        capture(model, {}, needs)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        *((name, torch.float32) for name in ("bert", "mpnet", "modernbert", "deberta-v2")),
        *((name, torch.bfloat16) for name in ("bert", "mpnet", "modernbert")),
    ],
)
def test_scores_are_float32_products_of_bf16_queries_and_keys(name: str, weights, tiny_model, tiny_batch) -> None:
    """A student under autocast, and a teacher of bf16 weights, against float64 products of the same tensors."""
    model, calls = tiny_model(name, layers=2).to(weights), []
    record = families.family_of(model)
    attention = families.layers(model)[1].get_submodule(record.layer.attention)
    attention.register_forward_pre_hook(lambda *call: calls.append(call[1:]), with_kwargs=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=weights == torch.float32):
        features = capture(model, tiny_batch, dict.fromkeys(("queries", "keys", "scores"), (1,)))
    query, key = features.queries[1].detach(), features.keys[1].detach()
    assert query.dtype == key.dtype == torch.bfloat16
    call = torch.utils._pytree.tree_map_only(
        torch.Tensor, lambda x: x.detach().double() if x.is_floating_point() else x, calls[0]
    )
    expected = record.scores(copy.deepcopy(attention).double(), query.double(), key.double(), call)
    torch.testing.assert_close(features.scores[1].double(), expected, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(expected.bfloat16().double(), expected, rtol=1e-4, atol=1e-4), "bf16 would be seen"
