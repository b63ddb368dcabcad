"""Models with other heads and FFN channels in each layer: zeros in a checkpoint, left out of what ONNX is made from."""

from __future__ import annotations

import pytest
import torch

from distill.compression.pruning.importance import Importance, masked
from distill.compression.pruning.prune import Kept
from distill.compression.pruning.ragged import STEP, anywhere, squeezed, zeroed
from distill.models import families
from tests.cut import SHARED, SIZES, logits, masks
from tests.tiny import SHAPES

HEADS, FFN = [[0], [1, 2, 3], [0, 2]], [[1, 5, 7, 23], [*range(8, 24)], [3]]


def uneven(name: str) -> Kept:
    """Of the first three layers another number of heads and channels in each, but where layers share them."""
    heads = HEADS[1:2] * 3 if name in SHARED else HEADS
    ffn = FFN[:1] * 3 if families.STUDENTS[name].shared_layers else FFN
    return Kept([0, 1, 2], torch.arange(32), [*map(torch.tensor, heads)], [*map(torch.tensor, ffn)])


@pytest.mark.parametrize("name", SHAPES)
def test_zeros_equal_masks_and_removing_them_changes_nothing(name: str, tiny_model, tiny_batch) -> None:
    model, kept = tiny_model(name, "SequenceClassification", **SIZES).eval(), uneven(name)
    made = zeroed(model, kept)
    assert made.config.num_hidden_layers == 3
    with masked(model, masks(4, kept.heads), masks(24, kept.ffn)):
        wanted = logits(model, tiny_batch)
    torch.testing.assert_close(logits(made, tiny_batch), wanted, rtol=1e-4, atol=1e-5)
    small = squeezed(made)
    torch.testing.assert_close(logits(small, tiny_batch), wanted, rtol=1e-4, atol=1e-5)
    record = families.family_of(small)
    inner = [layer.get_submodule(record.layer.ffn_out).in_features for layer in families.layers(small)]
    attended = [layer.get_submodule(record.layer.attention_output).in_features for layer in families.layers(small)]
    assert inner == [len(some) for some in kept.ffn]
    assert attended == [8 * len(some) for some in kept.heads]


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", SHAPES)
def test_training_leaves_zeros_zero(name: str, tiny_model, tiny_batch) -> None:
    made = zeroed(tiny_model(name, "SequenceClassification", **SIZES), uneven(name)).train()
    before = {key: value.clone() for key, value in made.state_dict().items()}
    optimizer = torch.optim.AdamW(made.parameters(), lr=1e-2, weight_decay=0.1)
    for _ in range(3):
        logits(made, tiny_batch).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    record, gone = families.family_of(made), 0
    assert record.layer is not None
    for number, layer in enumerate(families.layers(made)):
        for path in (record.layer.attention_output, record.layer.ffn_out):
            weight = layer.get_submodule(path).weight
            columns = (weight != 0).any(0)
            gone += int((~columns).sum())
            key = next(k for k, v in made.state_dict().items() if v.data_ptr() == weight.data_ptr())
            assert torch.equal(columns, (before[key] != 0).any(0)), number
            assert not torch.equal(weight, before[key])
    assert gone


def test_a_model_without_zeros_is_left_alone(tiny_model) -> None:
    model = tiny_model("bert", "SequenceClassification", **SIZES)
    assert squeezed(model) is model


def test_the_highest_scores_of_all_layers_are_kept(tiny_model) -> None:
    model = tiny_model("bert", "SequenceClassification", **SIZES)
    heads = torch.tensor([[9.0, 1, 8, 7], [0, 0.5, 0.1, 0.2], [3, 6, 2, 1]])
    ffn = torch.rand(3, 24, generator=torch.Generator().manual_seed(0)) + torch.tensor([[0.0], [5.0], [0.1]])
    kept = anywhere(model, [0, 1, 2], Importance(heads, ffn, torch.rand(32)), heads=2, ffn=16)
    assert [some.tolist() for some in kept.heads] == [[0, 2, 3], [1], [0, 1]]
    assert sum(len(some) for some in kept.ffn) == 3 * 16
    assert [len(some) for some in kept.ffn][1] == 24
    for row, some in zip(ffn, kept.ffn, strict=True):
        assert len(some) % STEP == 0
        assert row[some].min() >= row.sort(descending=True).values[: len(some)].min()
    everything = anywhere(model, [0, 2], Importance(heads, ffn, torch.rand(32)), heads=4, ffn=24)
    assert [len(some) for some in everything.heads + everything.ffn] == [4, 4, 24, 24]
