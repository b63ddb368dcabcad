"""Models under hard gates against pruned models, and folded gates against gates."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from distill.compression.pruning.masks import Masks, gated, merge
from distill.compression.pruning.prune import Kept, everything, pruned
from distill.models import families
from tests.cut import SHARED, SIZES, logits, some
from tests.tiny import SHAPES


def chosen(name: str, layers: list[int]) -> Kept:
    """Half of all heads and channels, others in each layer, but where layers share them."""
    seeds = [0 if name in SHARED else number for number in layers]
    ffn = [0 if families.STUDENTS[name].shared_layers else number for number in layers]
    return Kept(layers, some(32, 16, 99), [some(4, 2, seed) for seed in seeds], [some(24, 12, seed) for seed in ffn])


def hard(kept: Kept, depth: int) -> Masks:
    """The masks that close everything else."""

    def mask(count: int, indices: Any) -> Tensor:
        return torch.zeros(count).index_fill(0, torch.as_tensor(indices), 1.0)

    by_layer = dict(zip(kept.layers, zip(kept.heads, kept.ffn, strict=True), strict=True))
    first = by_layer[kept.layers[0]]
    rows = [by_layer.get(number, first) for number in range(depth)]
    return Masks(
        [mask(4, heads)[None] for heads, _ in rows],
        [mask(24, ffn)[None] for _, ffn in rows],
        mask(32, kept.hidden),
        mask(depth, kept.layers),
    )


@pytest.mark.quick(7)
@pytest.mark.parametrize("head", ["SequenceClassification", "TokenClassification"])
@pytest.mark.parametrize("name", SHAPES)
def test_a_model_under_hard_gates_equals_the_pruned_one(name: str, head: str, tiny_model, tiny_batch) -> None:
    model = tiny_model(name, head, layers=4, **SIZES)
    kept = chosen(name, [0, 2, 3])
    wanted = logits(pruned(model, kept), tiny_batch)
    with gated(model, hard(kept, 4)):
        found = logits(model, tiny_batch)
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(found, logits(model, tiny_batch), rtol=1e-2)


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", SHAPES)
def test_a_closed_layer_is_removed_and_a_half_open_one_interpolated(name: str, tiny_model, tiny_batch) -> None:
    model = tiny_model(name, "SequenceClassification", **SIZES)
    everywhere = Masks([torch.ones(1, 4)] * 3, [torch.ones(1, 24)] * 3)
    for kept in ([0, 1, 2], [0, 1], [0, 2], [0]):
        layers = torch.zeros(3).index_fill(0, torch.tensor(kept), 1.0)
        with gated(model, Masks(everywhere.heads, everywhere.ffn, layers=layers)):
            found = logits(model, tiny_batch)
        torch.testing.assert_close(found, logits(pruned(model, everything(model, kept)), tiny_batch))
    seen: list[Tensor] = []
    # Called before the hook of the gates, so that it sees what the layer outputs.
    hook = families.layers(model)[-1].register_forward_hook(
        lambda module, inputs, output: seen.extend([inputs[0], output[0] if isinstance(output, tuple) else output])
    )
    with gated(model, Masks(everywhere.heads, everywhere.ffn, layers=torch.tensor([1.0, 1.0, 0.25]))):
        after = []
        last = families.layers(model)[-1].register_forward_hook(
            lambda module, inputs, output: after.append(output[0] if isinstance(output, tuple) else output)
        )
        logits(model, tiny_batch)
    hook.remove()
    last.remove()
    torch.testing.assert_close(after[-1], 0.25 * seen[-1] + 0.75 * seen[-2])


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", SHAPES)
def test_folded_gates_equal_gates(name: str, tiny_model, tiny_batch) -> None:
    """Of heads and FFN channels at once; with hidden channels once those that are closed are pruned."""
    model, generator = tiny_model(name, "SequenceClassification", **SIZES), torch.Generator().manual_seed(2)
    before, kept = logits(model, tiny_batch), chosen(name, [0, 1, 2])
    closed = hard(kept, 3)

    def soft(mask: Tensor) -> Tensor:
        return mask * (0.3 + 0.7 * torch.rand(mask.shape, generator=generator))

    one = soft(torch.ones(1, 4)), soft(torch.ones(1, 24))
    partly = Masks([soft(m) for m in closed.heads], [soft(m) for m in closed.ffn], soft(closed.hidden))
    if name in SHARED:
        ffn = [one[1] * closed.ffn[0]] * 3 if families.STUDENTS[name].shared_layers else partly.ffn
        partly = Masks([one[0] * closed.heads[0]] * 3, ffn, partly.hidden)
    with gated(model, Masks(partly.heads, partly.ffn)):
        without = logits(model, tiny_batch)
    with gated(model, partly):
        wanted = logits(model, tiny_batch)
    other = tiny_model(name, "SequenceClassification", **SIZES)
    merge(other, Masks(partly.heads, partly.ffn))
    torch.testing.assert_close(logits(other, tiny_batch), without, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(without, before, rtol=1e-2)
    merge(model, partly)
    torch.testing.assert_close(logits(pruned(model, kept), tiny_batch), wanted, rtol=1e-3, atol=1e-4)
