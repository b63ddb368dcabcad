"""Replaced-token detection against transformers' ELECTRA, and what the tokens that a generator draws depend on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Bernoulli, kl_divergence

from distill import losses
from distill.data.collate import draws, mask_tokens
from distill.losses.objective import Objective
from distill.losses.replaced import drawn, replaced
from distill.losses.terms import Term
from distill.models import families

FOUND = Term(1.0, "replaced", "labels", "all", losses.supervised)
TEMPERATURE = 3.0
TAUGHT = Term(1.0, "replaced", "teacher", "all", partial(losses.soft_targets, temperature=TEMPERATURE))
MASK = 4


@pytest.fixture
def batch(tiny_batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rows of 7 and 4 tokens, five of which are masked."""
    masked = torch.tensor([1, 2, 5, 8, 9])
    real = tiny_batch["attention_mask"].flatten().nonzero().squeeze(1)
    ids = tiny_batch["input_ids"].flatten().clone()
    labels = ids[masked].clone()
    ids[masked] = MASK
    uniform = torch.tensor([0.1, 0.9, 0.5, 0.3, 0.7])
    return tiny_batch | {
        "input_ids": ids.view(2, 7), "masked": masked, "real": real, "labels": labels, "drawn": uniform,
    }  # fmt: skip


@pytest.fixture
def models(tiny_model: Callable[..., Any]) -> tuple[Any, Any, Any]:
    """Generator, student and teacher in float64."""
    generator = tiny_model("bert", "MaskedLM", seed=2).double()
    student, teacher = (tiny_model("electra", "PreTraining", layers=n, seed=n).double() for n in (2, 3))
    return generator, student, teacher


def flags(found: dict[str, Tensor]) -> Tensor:
    """`replaced` as transformers takes it, [B, L]."""
    whole = torch.zeros_like(found["input_ids"]).flatten()
    whole[found["real"]] = found["replaced"]
    return whole.view_as(found["input_ids"])


def test_the_loss_is_that_of_transformers(models: tuple[Any, Any, Any], batch: dict[str, Tensor]) -> None:
    generator, student, _ = models
    found = replaced(generator, batch)
    assert 0 < found["replaced"].sum() <= len(batch["masked"])
    inputs = {name: found[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
    outputs = student(**inputs, labels=flags(found))
    theirs, real = outputs.loss, batch["real"]
    rows = families.rtd_logits(student, families.encode(student, found).flatten(0, 1)[real])
    by_row = F.binary_cross_entropy_with_logits(
        outputs.logits.flatten()[real], found["replaced"].double(), reduction="none"
    )
    torch.testing.assert_close(losses.supervised(rows, found["replaced"]), by_row, rtol=1e-12, atol=1e-12)
    objective = Objective(student, {"found": FOUND}, generator=generator)
    (ours,) = objective(batch) / objective.counts(batch)
    # Both are float32, of logits in float64.
    torch.testing.assert_close(ours.float(), theirs.float(), rtol=1e-6, atol=0)
    ours.backward()
    assert all(parameter.grad is None for parameter in generator.parameters())
    ours_of = {name: parameter.grad.clone() for name, parameter in student.named_parameters()}
    student.zero_grad()
    theirs.backward()
    for name, parameter in student.named_parameters():
        torch.testing.assert_close(ours_of[name], parameter.grad, rtol=1e-5, atol=1e-9)


def test_a_discriminators_probabilities_are_learned(models: tuple[Any, Any, Any], batch: dict[str, Tensor]) -> None:
    generator, student, teacher = models
    found = replaced(generator, batch)
    inputs = {name: found[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
    real = batch["real"]
    of_student, of_teacher = (
        Bernoulli(logits=model(**inputs).logits.flatten()[real] / TEMPERATURE) for model in (student, teacher)
    )
    theirs = TEMPERATURE**2 * kl_divergence(of_teacher, of_student).sum()
    (ours,) = Objective(student, {"taught": TAUGHT}, [teacher], generator=generator)(batch)
    torch.testing.assert_close(ours.double(), theirs.detach(), rtol=1e-6, atol=0, check_dtype=False)
    (same,) = Objective(teacher, {"taught": TAUGHT}, [teacher], generator=generator)(batch)
    assert abs(same) < 1e-9
    ours.backward()
    assert all(parameter.grad is None for model in (generator, teacher) for parameter in model.parameters())


def test_layers_are_compared_on_the_replaced_texts(models: tuple[Any, Any, Any], batch: dict[str, Tensor]) -> None:
    generator, student, teacher = models
    hidden = Term(1.0, "hidden", "teacher", "all", losses.mse)
    both = Objective(student, {"found": FOUND, "hidden": hidden}, [teacher], generator=generator)(batch)
    plain = replaced(generator, batch)
    alone = Objective(student, {"hidden": hidden}, [teacher])(plain)
    torch.testing.assert_close(both[1], alone[0])


def test_only_masked_tokens_change_and_an_equal_token_counts_as_original(
    models: tuple[Any, Any, Any], batch: dict[str, Tensor]
) -> None:
    generator = models[0]
    before = {name: value.clone() for name, value in batch.items()}
    found = replaced(generator, batch)
    assert all(torch.equal(batch[name], value) for name, value in before.items())  # in place of a copy
    others = torch.ones(14, dtype=torch.bool)
    others[batch["masked"]] = False
    assert torch.equal(found["input_ids"].flatten()[others], batch["input_ids"].flatten()[others])
    tokens = found["input_ids"].flatten()[batch["masked"]]
    assert torch.equal(flags(found).flatten()[batch["masked"]].bool(), tokens != batch["labels"])
    right = replaced(generator, batch | {"labels": tokens})
    assert right["replaced"].sum() == 0
    assert torch.equal(right["input_ids"], found["input_ids"])


def test_a_token_does_not_depend_on_the_other_texts(models: tuple[Any, Any, Any], batch: dict[str, Tensor]) -> None:
    generator = models[0]
    together = replaced(generator, batch)["input_ids"]
    for row, masked, length in ((0, [1, 2, 5], 7), (1, [1, 2], 4)):
        inputs = {name: batch[name][row : row + 1, :length] for name in ("input_ids", "attention_mask")}
        inputs["token_type_ids"] = batch["token_type_ids"][row : row + 1, :length]
        part = slice(0, 3) if row == 0 else slice(3, 5)
        alone = inputs | {name: batch[name][part] for name in ("labels", "drawn")}
        alone |= {"masked": torch.tensor(masked), "real": torch.arange(length)}
        assert torch.equal(replaced(generator, alone)["input_ids"][0], together[row, :length])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_tokens_are_drawn_by_their_probabilities(dtype: torch.dtype) -> None:
    """Evenly spaced numbers draw each token in proportion to its probability."""
    logits = torch.randn(9, generator=torch.Generator().manual_seed(0), dtype=torch.float64).mul(2).to(dtype)
    logits[3] = -torch.inf
    count = 4000
    uniform = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    tokens = drawn(logits.expand(count, -1), uniform)
    share = np.bincount(tokens.numpy(), minlength=9) / count
    np.testing.assert_allclose(share, logits.double().softmax(-1).numpy(), atol=2 / count)
    assert share[3] == 0


def test_no_number_draws_a_token_that_is_not_there_or_has_no_probability() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, 1.0, -torch.inf]] * 3)
    tokens = drawn(logits, torch.tensor([0.0, 1.0, 1.0 - 2**-24]))
    assert tokens.tolist() == [1, 2, 2]


def test_numbers_depend_on_seed_epoch_row_and_position_alone() -> None:
    chosen = np.zeros((2, 8), np.bool_)
    chosen[0, [1, 4]] = chosen[1, [2, 4, 6]] = True
    numbers = draws(chosen, np.array([7, 3]), seed=1, epoch=2)
    assert (numbers.dtype, numbers.shape) == (np.float32, (5,))
    swapped = draws(np.pad(chosen[::-1], ((0, 0), (0, 8))), np.array([3, 7]), seed=1, epoch=2)
    assert numbers.tolist() == [*swapped[3:], *swapped[:3]]
    others = draws(chosen, np.array([7, 3]), seed=1, epoch=3), draws(chosen, np.array([7, 4]), seed=1, epoch=2)
    assert not np.any(others[0] == numbers)
    assert [*(others[1] == numbers)] == [True, True, False, False, False]


def test_numbers_are_uniform() -> None:
    many = draws(np.ones((100, 128), np.bool_), np.arange(100), seed=0, epoch=0)
    assert 0 <= many.min() < many.max() <= 1
    counts = np.histogram(many, bins=16, range=(0, 1))[0]
    expected = many.size / 16
    assert ((counts - expected) ** 2 / expected).sum() < 38  # chi-squared of 15 degrees of freedom: p = 0.001


def test_a_drawn_token_does_not_tell_whether_the_next_one_is_masked() -> None:
    ids = np.full((400, 128), 5)
    _, chosen = mask_tokens(
        ids, ids > 0, np.arange(400), seed=3, epoch=1, probability=0.15, mask_id=MASK, random_ids=[5], weights=None
    )
    numbers = draws(chosen, np.arange(400), seed=3, epoch=1)
    following = np.pad(chosen[:, 1:], ((0, 0), (0, 1)))[chosen]
    assert following.sum() > 800
    # The mean of 800 uniform numbers has a standard deviation of 0.01.
    assert abs(numbers[following].mean() - 0.5) < 0.05
    assert numbers[~following].max() > 0.99
