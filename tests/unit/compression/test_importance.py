"""Scores of heads and channels against what happens to the loss without them."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from distill.compression.pruning.importance import Importance, fisher, magnitude, masked, taylor
from distill.compression.pruning.prune import everything, pruned
from distill.compression.pruning.select_kept import by_loss, mean_loss, most_important, without_each
from distill.compression.pruning.sensitivity import row_loss as loss_of_kind
from distill.data.task_types import TASK_TYPES
from distill.models import families
from tests.tiny import SHAPES

row_loss = functools.partial(loss_of_kind, TASK_TYPES["classification"])
SIZES = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 24, "num_labels": 3}


def model_of(tiny_model: Any, name: str, **settings: Any) -> Any:
    return tiny_model(name, "SequenceClassification", **SIZES | settings)


@pytest.mark.parametrize("name", SHAPES)
def test_gradients_of_masks_are_those_of_each_row_alone(name: str, tiny_model, tiny_batch) -> None:
    """By finite differences of the loss of each row, in float64."""
    model = model_of(tiny_model, name, layers=2).double()
    found = {"taylor": taylor(model, [tiny_batch], row_loss), "fisher": fisher(model, [tiny_batch], row_loss)}
    # ModernBERT rotates and EuroBERT normalizes in float32, and DeBERTa adds a float32 bias: differences are as coarse.
    step, rel = (1e-2, 2e-2) if name in ("modernbert", "eurobert", "ultrabert", "deberta") else (1e-5, 1e-3)

    def losses(heads: Tensor, ffn: Tensor, hidden: Tensor) -> Tensor:
        parts = [mask[None] for mask in heads], [mask[None] for mask in ffn], hidden[None]
        with torch.no_grad(), masked(model, *parts):
            return row_loss(model, tiny_batch).double()

    ones = {"heads": torch.ones(2, 4), "ffn": torch.ones(2, 24), "hidden": torch.ones(32)}
    ones = {key: value.double() for key, value in ones.items()}
    for part, place in (("heads", (0, 1)), ("heads", (1, 3)), ("ffn", (1, 5)), ("hidden", (7,))):
        ends = []
        for sign in (1, -1):
            moved = {key: value.clone() for key, value in ones.items()}
            moved[part][place] += sign * step
            ends.append(losses(**moved))
        slope = (ends[0] - ends[1]) / (2 * step)
        wanted = {"taylor": slope.abs().mean().item(), "fisher": slope.square().mean().item()}
        for measure, value in wanted.items():
            assert getattr(found[measure], part)[place].item() == pytest.approx(value, rel=rel, abs=1e-7)


@pytest.mark.parametrize("name", SHAPES)
def test_masks_of_ones_change_nothing_and_leave_no_hook(name: str, tiny_model, tiny_batch) -> None:
    model = model_of(tiny_model, name)
    before = row_loss(model, tiny_batch)
    with masked(model, [torch.ones(1, 4)] * 3, [torch.ones(1, 24)] * 3, torch.ones(1, 32)):
        for _ in range(2):  # a second call counts its layers anew
            torch.testing.assert_close(row_loss(model, tiny_batch), before)
    assert not any(m._forward_pre_hooks for m in model.modules())


def test_unused_channels_have_score_zero(tiny_model, tiny_batch) -> None:
    model = model_of(tiny_model, "bert")
    with torch.no_grad():
        model.bert.encoder.layer[1].output.dense.weight[:, 5] = 0
        model.bert.encoder.layer[2].attention.output.dense.weight[:, 8:16] = 0
    for scores in (magnitude(model), taylor(model, [tiny_batch], row_loss), fisher(model, [tiny_batch], row_loss)):
        assert scores.ffn[1, 5] == 0
        assert scores.heads[2, 1] == 0
        assert (scores.ffn > 0).sum() == 3 * 24 - 1
        assert (scores.heads > 0).sum() == 3 * 4 - 1
        kept = most_important(model, [1, 2], scores, 24, 23)
        assert 5 not in kept.ffn[0]
        assert 1 not in kept.heads[1]


def test_a_head_that_shifts_all_choices_of_a_row_is_useless(tiny_model, tiny_batch) -> None:
    """Its sum over the sequences of a row counts: the same row twice as two choices has the gradient 0."""
    model = tiny_model("bert", "MultipleChoice", **SIZES | {"num_labels": 1})
    loss = functools.partial(loss_of_kind, TASK_TYPES["multiple_choice"])
    twice = {key: value.repeat(2, *[1] * (value.ndim - 1)) for key, value in tiny_batch.items() if key != "labels"}
    rows = len(tiny_batch["input_ids"])
    groups = torch.stack([torch.arange(rows), torch.arange(rows) + rows], dim=1)
    batch = twice | {"groups": groups, "labels": torch.zeros(rows, dtype=torch.long)}
    for scores in (taylor(model, [batch], loss), fisher(model, [batch], loss)):
        assert scores.heads.abs().max() < 1e-6
        assert scores.ffn.abs().max() < 1e-6
    # Rows that share a sequence, as queries share documents, are measured by sequences.
    shared = batch | {"groups": torch.stack([torch.arange(rows), torch.full((rows,), rows)], dim=1)}
    assert fisher(model, [shared], loss).heads.max() > 0


def test_batches_do_not_matter(tiny_model, tiny_batch) -> None:
    model = model_of(tiny_model, "bert")
    apart = [{key: value[row : row + 1] for key, value in tiny_batch.items()} for row in (0, 1)]
    for measure in (taylor, fisher):
        together, alone = measure(model, [tiny_batch], row_loss), measure(model, apart, row_loss)
        for part in ("heads", "ffn", "hidden"):
            torch.testing.assert_close(getattr(together, part), getattr(alone, part), rtol=1e-3, atol=1e-6)


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", SHAPES)
def test_the_layer_with_the_least_loss_increase_is_removed_first(name: str, tiny_model, tiny_batch) -> None:
    model = model_of(tiny_model, name, layers=4)
    found = by_loss(model, [tiny_batch], row_loss, 2)
    assert sorted(found) == [2, 3, 4]
    whole = row_loss(model, tiny_batch).mean().item()
    assert found[4] == ([0, 1, 2, 3], pytest.approx(whole, rel=1e-5))
    kept, value = found[3]
    assert value == pytest.approx(mean_loss(pruned(model, everything(model, kept)), [tiny_batch], row_loss))
    if not families.STUDENTS[name].shared_layers:
        fixed = 1 if families.STUDENTS[name].first_layer else 0
        others = [[n for n in range(4) if n != gone] for gone in range(fixed, 4)]
        assert value == pytest.approx(
            min(mean_loss(pruned(model, everything(model, rest)), [tiny_batch], row_loss) for rest in others)
        )
    assert set(found[2][0]) < set(found[3][0])


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", [name for name in SHAPES if not families.STUDENTS[name].shared_layers])
def test_losses_without_a_layer_are_those_of_pruned_models(name: str, tiny_model, tiny_batch) -> None:
    """Also where the first layer is skipped, whose outputs have not been seen."""
    model, first = model_of(tiny_model, name, layers=4), families.STUDENTS[name].first_layer
    kept = [0, 2, 3] if first else [1, 2, 3]
    apart = [{key: value[row : row + 1] for key, value in tiny_batch.items()} for row in (0, 1)]
    found = without_each(model, apart, row_loss, kept, kept[1:])
    for gone, value in found.items():
        small = pruned(model, everything(model, [number for number in kept if number != gone]))
        assert value == pytest.approx(mean_loss(small, apart, row_loss), rel=1e-5)
    assert list(found) == kept[1:]
    assert all("forward" not in vars(layer) for layer in families.layers(model))
    torch.testing.assert_close(mean_loss(model, [tiny_batch], row_loss), mean_loss(model, apart, row_loss))


def test_of_equal_scores_the_first_are_kept(tiny_model) -> None:
    model = model_of(tiny_model, "bert")
    scores = Importance(torch.ones(3, 4), torch.ones(3, 24), torch.arange(32.0))
    kept = most_important(model, [0, 2], scores, 16, 5)
    assert kept.hidden.tolist() == list(range(16, 32))
    assert [heads.tolist() for heads in kept.heads] == [[0, 1], [0, 1]]
    assert [ffn.tolist() for ffn in kept.ffn] == [[0, 1, 2, 3, 4]] * 2
