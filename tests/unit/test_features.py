"""Captured features against what transformers itself returns, for every family, kernel and padding."""

from __future__ import annotations

import copy

import pytest
import torch

from distill import family
from distill.features import ATTENTION, capture

FAMILIES = sorted(family.STUDENTS)
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
def test_hidden_is_what_the_model_returns(name: str, head: str, tiny_model, tiny_batch) -> None:
    model = tiny_model(name, head, layers=4)
    out = model(**family.inputs(model, tiny_batch), output_hidden_states=True)
    features = capture(model, tiny_batch, {"hidden": [0, 2, 3]})
    assert sorted(features.hidden) == [0, 2, 3]
    for number, hidden in features.hidden.items():
        torch.testing.assert_close(hidden, out.hidden_states[number + 1], rtol=0, atol=0)
    assert features.mask is tiny_batch["attention_mask"]
    assert all(getattr(features, name) == {} for name in ATTENTION)
    if head == "MaskedLM":
        assert features.logits is None
    else:
        torch.testing.assert_close(features.logits, out.logits, rtol=0, atol=0)


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("name", FAMILIES)
def test_scores_and_values_give_the_attention_of_the_model(name: str, padded: bool, tiny_model, tiny_batch) -> None:
    """Softmax of the scores is the attention transformers returns; that times the values is what is projected."""
    batch = tiny_batch if padded else unpadded(tiny_batch)
    model = kernel(tiny_model(name, layers=4), "eager")
    record, attended = family.family_of(model), []
    handles = [
        layer.get_submodule(record.layer.attention_output).register_forward_pre_hook(
            lambda module, arguments: attended.append(arguments[0])
        )
        for layer in dict.fromkeys(family.layers(model))
    ]
    out = model(**family.inputs(model, batch), output_attentions=True)
    for handle in handles:
        handle.remove()
    found = capture(model, batch, dict.fromkeys(ATTENTION, LAYERS))
    real = batch["attention_mask"].bool()
    for number in LAYERS:
        expected = out.attentions[number]
        scores = found.scores[number]
        assert found.queries[number].shape == found.keys[number].shape == found.values[number].shape == (2, 2, 7, 8)
        assert scores.shape == expected.shape == (2, 2, 7, 7)
        seen = expected > 0
        assert not (seen & ~real[:, None, None, :])[real[:, None, :].expand(2, 2, 7)].any()
        ours = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        rows = real[:, None, :].expand(2, 2, 7)
        torch.testing.assert_close(ours[rows], expected[rows], rtol=1e-4, atol=1e-5)
        context = (expected @ found.values[number]).transpose(1, 2).flatten(2)
        torch.testing.assert_close(context[real], attended[number][real], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in FAMILIES if "sdpa" in family.FAMILIES[name].attention])
def test_the_kernel_of_attention_does_not_matter(name: str, tiny_model, tiny_batch) -> None:
    model = tiny_model(name)
    needs = dict.fromkeys(("hidden", *ATTENTION), LAYERS[:3])
    one, other = (capture(kernel(model, k), tiny_batch, needs) for k in ("eager", "sdpa"))
    real = tiny_batch["attention_mask"].bool()
    for number in LAYERS[:3]:
        torch.testing.assert_close(one.hidden[number][real], other.hidden[number][real], rtol=1e-4, atol=1e-4)
        for what in ("queries", "keys", "values"):
            pair = (getattr(found, what)[number].transpose(1, 2)[real] for found in (one, other))
            torch.testing.assert_close(*pair, rtol=1e-4, atol=1e-4)
        pairs = (real[:, :, None] & real[:, None, :])[:, None].expand(2, 2, 7, 7)
        torch.testing.assert_close(one.scores[number][pairs], other.scores[number][pairs], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_kernels_named_are_those_that_transformers_has(name: str, tiny_model) -> None:
    best = family.FAMILIES[name].attention[-1]
    assert tiny_model(name).config._attn_implementation == best, "transformers takes the fastest there is"


def test_gradients_flow_through_captured_features(tiny_model, tiny_batch) -> None:
    model = tiny_model("bert")
    capture(model, tiny_batch, {"hidden": [1]}).hidden[1].sum().backward()
    reached = [any(p.grad is not None for p in layer.parameters()) for layer in family.layers(model)]
    assert reached == [True, True, False]


def test_no_hook_is_left_behind(tiny_model, tiny_batch) -> None:
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
    record = family.family_of(model)
    attention = family.layers(model)[1].get_submodule(record.layer.attention)
    attention.register_forward_pre_hook(lambda *call: calls.append(call[1:]), with_kwargs=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=weights == torch.float32):
        found = capture(model, tiny_batch, dict.fromkeys(("queries", "keys", "scores"), (1,)))
    query, key = found.queries[1].detach(), found.keys[1].detach()
    assert query.dtype == key.dtype == torch.bfloat16
    call = torch.utils._pytree.tree_map_only(
        torch.Tensor, lambda x: x.detach().double() if x.is_floating_point() else x, calls[0]
    )
    wanted = record.scores(copy.deepcopy(attention).double(), query.double(), key.double(), call)
    torch.testing.assert_close(found.scores[1].double(), wanted, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(wanted.bfloat16().double(), wanted, rtol=1e-4, atol=1e-4), "bf16 would be seen"
