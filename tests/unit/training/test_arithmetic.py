"""Training with copies of the parameters in bfloat16, which a GPU does; what it computes is tested on any device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from distill import losses
from distill.config import Train
from distill.losses.objective import Objective
from distill.losses.shared_encoder import SharedObjective, share_encoder
from distill.losses.terms import Term
from distill.models import families
from distill.models.families.record import TEXTS
from distill.training.arithmetic import InBf16, InFp16, in_arithmetic
from distill.training.nonfinite import HALVINGS, scaler_of

TERMS = {"supervised": Term(1.0, "logits", "labels", "all", losses.supervised)}
GPU: Any = SimpleNamespace(device=torch.device("cuda"), mixed_precision="bf16")
IN_BF16 = [name for name, record in families.FAMILIES.items() if record.bf16 and TEXTS not in record.without]


def classifier(name: str, tiny_model: Any, batch: dict[str, torch.Tensor]) -> Objective:
    """The objective of a tiny classifier, and the batch as its family reads it."""
    objective = Objective(tiny_model(name, "SequenceClassification"), TERMS)
    objective.student.config.pad_token_id = 1
    batch["input_ids"][[0, 1], [6, 3]] = 2  # sequence-to-sequence models read the end of a text
    return objective


@pytest.mark.quick(6)
@pytest.mark.parametrize("name", IN_BF16)
def test_gradients_in_bf16_are_those_of_float32_but_for_rounding(name: str, tiny_model, tiny_batch) -> None:
    objective = classifier(name, tiny_model, tiny_batch)
    objective(tiny_batch).sum().backward()
    exact = torch.cat([p.grad.flatten() for p in objective.parameters() if p.grad is not None])
    had = [p.grad is not None for p in objective.parameters()]
    objective.zero_grad()
    before = {key: value.clone() for key, value in objective.state_dict().items()}
    sums = InBf16(objective)(tiny_batch)
    sums.sum().backward()
    assert sums.dtype == torch.float32
    assert [p.grad is not None for p in objective.parameters()] == had
    assert {p.grad.dtype for p in objective.parameters() if p.grad is not None} == {torch.float32}
    rounded = torch.cat([p.grad.flatten() for p in objective.parameters() if p.grad is not None])
    assert torch.cosine_similarity(exact, rounded, 0) > 0.99
    assert not torch.equal(exact, rounded)
    torch.testing.assert_close(dict(objective.state_dict()), before, rtol=0, atol=0)


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", IN_BF16)
def test_gradients_in_fp16_are_those_of_float32_but_for_their_scale(name: str, tiny_model, tiny_batch) -> None:
    objective = classifier(name, tiny_model, tiny_batch)
    found = []
    for module in (objective, InFp16(objective, scaler_of(torch.device("cpu"), fp16=True))):
        objective.zero_grad()
        (module(tiny_batch).sum() * 1e-4).backward()
        found.append(torch.cat([p.grad.flatten() for p in objective.parameters() if p.grad is not None]))
    assert torch.cosine_similarity(*found, 0) > 0.99
    assert found[1].norm().item() == pytest.approx(found[0].norm().item() * 2**HALVINGS, rel=0.02)


def test_tasks_that_share_an_encoder_add_to_one_gradient(tiny_model, tiny_batch) -> None:
    models = [tiny_model("bert", "SequenceClassification", seed=seed) for seed in range(2)]
    share_encoder(models)
    shared = SharedObjective([Objective(model, TERMS) for model in models])
    batch = {f"{number}.{key}": value for number in range(2) for key, value in tiny_batch.items()}
    shared(batch).sum().backward()
    exact = {name: parameter.grad for name, parameter in shared.named_parameters() if parameter.grad is not None}
    shared.zero_grad()
    InBf16(shared)(batch).sum().backward()
    rounded = {name: parameter.grad for name, parameter in shared.named_parameters() if parameter.grad is not None}
    assert rounded.keys() == exact.keys()
    both = [torch.cat([gradient.flatten() for gradient in found.values()]) for found in (exact, rounded)]
    assert torch.cosine_similarity(*both, 0) > 0.99


def test_only_a_gpu_in_bf16_without_float32_parts(tiny_model) -> None:
    def chosen(accelerator: Any = GPU, name: str = "bert", gates: Any = None, **settings: Any) -> bool:
        objective = Objective(tiny_model(name, "SequenceClassification"), TERMS)
        objective.gates = gates
        settings = {"data": "tasks"} | settings
        return isinstance(in_arithmetic(objective, Train(**settings), accelerator), InBf16)

    assert chosen()
    assert not chosen(data="corpus")  # its terms are on all positions
    assert not chosen(SimpleNamespace(device=torch.device("cuda"), mixed_precision="no"))
    assert not chosen(SimpleNamespace(device=torch.device("cpu"), mixed_precision="bf16"))
    assert not chosen(name="deberta")
    assert not chosen(gates=torch.nn.Identity())
    assert not chosen(quantization_aware=True)
