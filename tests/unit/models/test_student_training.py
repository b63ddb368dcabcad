"""Changes that speed up training do not change what is computed, nor the trained model."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor

from distill.models import families, student
from distill.models.student import dropout
from distill.models.student.training import (
    ALIGNED,
    SHORT,
    aligned,
    aligned_vocabulary,
    only_used_embeddings,
    quick_on_cpu,
)
from tests.tiny import SHAPES

EAGER = [name for name in SHAPES if "sdpa" not in families.STUDENTS[name].attention]
"""Families that have no other attention."""


def trained(model, batch: dict[str, Tensor], steps: int = 3) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    losses = []
    for _ in range(steps):
        loss = model(**families.inputs(model, batch)).logits.square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", SHAPES)
def test_training_only_used_embeddings_equals_training_all(name: str, tiny_model, tiny_batch) -> None:
    whole = tiny_model(name, "SequenceClassification").eval()
    part, start = copy.deepcopy(whole), whole.get_input_embeddings().weight.detach().clone()
    ids = tiny_batch["input_ids"]
    expected = trained(whole, tiny_batch)
    table = part.get_input_embeddings()
    parameter = table.weight
    with only_used_embeddings(part, ids.numpy().ravel()):
        assert len(part.get_input_embeddings().weight) <= len(ids.unique()) + 1 < len(start)
        assert trained(part, tiny_batch) == pytest.approx(expected, rel=1e-4)
    assert table.weight is parameter
    for key, value in whole.state_dict().items():
        torch.testing.assert_close(part.state_dict()[key], value, rtol=1e-3, atol=1e-4, msg=key)
    unseen = np.setdiff1d(np.arange(len(start)), ids.numpy())
    assert torch.equal(table.weight[unseen], start[unseen])
    assert not torch.equal(table.weight, start)


def test_an_embedding_shared_with_a_head_is_not_reduced(tiny_model, tiny_batch) -> None:
    model = tiny_model("bert", "MaskedLM")
    before = model.get_input_embeddings().weight
    with only_used_embeddings(model, np.array([5, 6])):
        assert model.get_input_embeddings().weight is before


def test_a_token_without_a_row_is_an_error(tiny_model, tiny_batch) -> None:
    model = tiny_model("bert", "SequenceClassification")
    with only_used_embeddings(model, np.array([1])), pytest.raises(IndexError):
        model(**families.inputs(model, tiny_batch))


def test_trained_rows_are_written_back_after_an_interruption(tiny_model, tiny_batch) -> None:
    model = tiny_model("bert", "SequenceClassification")
    start = model.get_input_embeddings().weight.detach().clone()

    def stopped() -> None:
        with only_used_embeddings(model, tiny_batch["input_ids"].numpy()):
            trained(model, tiny_batch, steps=1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert model.get_input_embeddings().weight.shape == start.shape
    assert not torch.equal(model.get_input_embeddings().weight, start)


@pytest.mark.parametrize("name", SHAPES)
def test_short_rows_use_eager_attention_with_equal_outputs(name: str, tiny_model, tiny_batch) -> None:
    model = tiny_model(name, "SequenceClassification").eval()
    usual, wanted = model.config._attn_implementation, model(**families.inputs(model, tiny_batch)).logits
    with quick_on_cpu(model, [SHORT]):
        assert model.config._attn_implementation in ("eager", dropout.ATTENTION)
        torch.testing.assert_close(model(**families.inputs(model, tiny_batch)).logits, wanted, rtol=1e-4, atol=1e-5)
    assert model.config._attn_implementation == usual
    with quick_on_cpu(model, [SHORT + 1]):
        drops = any(type(module) is torch.nn.Dropout and module.p > 0 for module in model.modules())
        assert (model.config._attn_implementation == usual) == (name in EAGER or not drops)
    student.set_dropout(model, 0.0)
    with quick_on_cpu(model, [SHORT + 1]):
        assert model.config._attn_implementation == usual


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_dropout_keeps_values_with_their_probability(dtype: torch.dtype) -> None:
    values = torch.ones(300, 1001, dtype=dtype, requires_grad=True)
    torch.manual_seed(3)
    found = dropout.dropped(values, 0.3)
    kept = found != 0
    assert found.dtype == dtype
    assert kept.double().mean().item() == pytest.approx(0.7, abs=0.004)  # 5 standard deviations
    assert kept[:, ::4].double().mean().item() == pytest.approx(0.7, abs=0.008)  # a draw has bits for four values
    assert set(found[kept].unique().tolist()) == {torch.tensor(1 / 0.7).to(dtype).item()}
    found.sum().backward()
    torch.testing.assert_close(values.grad, found.detach())
    torch.manual_seed(3)
    assert torch.equal(dropout.dropped(values, 0.3), found)
    assert not torch.equal(dropout.dropped(values, 0.3), found)
    pairs = kept.flatten()[:-1] & kept.flatten()[1:]
    assert pairs.double().mean().item() == pytest.approx(0.49, abs=0.01)


@pytest.mark.parametrize("name", SHAPES)
def test_dropout_of_a_model_is_the_same_in_amount(name: str, tiny_model, tiny_batch) -> None:
    """And everything that drops something in torch's way does so in ours."""
    model = tiny_model(name, "SequenceClassification").train()
    student.set_dropout(model, 0.5)
    given, inner = families.inputs(model, tiny_batch), []
    with pytest.MonkeyPatch.context() as patch, quick_on_cpu(model, [8]):
        patch.setattr(dropout, "dropped", lambda values, p: (inner.append(p), values)[1])
        patch.setattr(torch.nn.functional, "dropout", lambda values, p=0.5, training=True, inplace=False: values)
        once = model(**given).logits
        assert torch.equal(model(**given).logits, once)
        assert set(inner) == {0.5}
    assert not any("forward" in vars(module) for module in model.modules())
    with quick_on_cpu(model, [8]):
        torch.manual_seed(0)
        first = model(**given).logits
        assert not torch.equal(model(**given).logits, first)
        torch.manual_seed(0)
        assert torch.equal(model(**given).logits, first)
        model.eval()
        assert torch.equal(model(**given).logits, model(**given).logits)


def test_sizes_that_suit_a_gpu_change_no_output() -> None:
    linear, inputs = torch.nn.Linear(16, 61).double(), torch.randn(5, 16, dtype=torch.float64, requires_grad=True)
    wanted = linear(inputs)
    torch.testing.assert_close(aligned(linear, inputs), wanted)
    expected = torch.autograd.grad(wanted.square().sum(), (inputs, linear.weight, linear.bias))
    found = torch.autograd.grad(aligned(linear, inputs).square().sum(), (inputs, linear.weight, linear.bias))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", SHAPES)
def test_vocabulary_logits_are_the_same_in_sizes_that_suit_a_gpu(name: str, tiny_model, tiny_batch) -> None:
    model = tiny_model(name)
    wanted = model(**families.inputs(model, tiny_batch)).logits
    assert wanted.shape[-1] % ALIGNED
    with aligned_vocabulary([model, model]):
        assert "forward" in vars(model.get_output_embeddings())
        torch.testing.assert_close(model(**families.inputs(model, tiny_batch)).logits, wanted, rtol=1e-4, atol=1e-5)
    assert not any("forward" in vars(module) for module in model.modules())
