"""A student that runs within its teacher: which layers run, what they compute, and what is trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from distill import losses
from distill.losses.objective import Objective
from distill.losses.terms import Term
from distill.models import families, student
from distill.models.student.replacing import Replacing
from tests.tiny import SHAPES

LAYERS = (0, 2, 5)
"""Of six. The groups of a student of three layers are layers 0 and 1, 2 and 3, 4 and 5."""


@pytest.fixture
def pair(tiny_model) -> Callable[..., tuple[Any, Any]]:
    """A teacher of six layers and a student that starts from three of them, but has other weights; in float64."""

    def make(name: str, layers: tuple[int, ...] = LAYERS) -> tuple[Any, Any]:
        teacher = tiny_model(name, "SequenceClassification", layers=6, seed=1).double()
        made = student.from_teacher(teacher, layers, init="teacher_layers", seed=0).double().eval()
        with torch.no_grad():
            for parameter in {p for layer in families.layers(made) for p in layer.parameters()}:
                parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)).double()
        return made, teacher

    return make


def outputs(model: Any, batch: dict[str, Tensor]) -> Tensor:
    return families.logits(model, batch)


def replacing(made: Any, teacher: Any, rate: float = 0.5, total: int = 40, seed: int = 7) -> Replacing:
    return Replacing(made, teacher, rate=rate, seed=seed, total=total)


def fixed(part: Replacing, draws: list[bool]) -> Replacing:
    part.drawn = lambda count, progress: draws  # type: ignore[method-assign]
    return part


@pytest.mark.parametrize("name", SHAPES)
def test_with_no_group_replaced_it_is_the_teacher_and_with_all_the_student(
    name: str, pair: Callable[..., tuple[Any, Any]], tiny_batch: dict[str, Tensor]
) -> None:
    made, teacher = pair(name)
    alone, whole = outputs(made, tiny_batch), outputs(teacher, tiny_batch)
    assert not torch.allclose(alone, whole)
    part = replacing(made, teacher)
    for draws, expected in (([False] * 3, whole), ([True] * 3, alone)):
        with fixed(part, draws).on(made, 0.0):
            torch.testing.assert_close(outputs(made, tiny_batch), expected, rtol=0, atol=1e-12)
        # Nothing is left of it.
        torch.testing.assert_close(outputs(made, tiny_batch), alone, rtol=0, atol=0)
        torch.testing.assert_close(outputs(teacher, tiny_batch), whole, rtol=0, atol=0)
    assert len(families.layers(teacher)) == 6
    assert len(families.layers(made)) == 3


@pytest.mark.parametrize("name", [name for name in SHAPES if name != "albert"])
def test_a_layer_of_the_student_stands_for_its_group_of_neighbours(
    name: str, pair: Callable[..., tuple[Any, Any]], tiny_batch: dict[str, Tensor]
) -> None:
    """The oracle is a teacher of five layers, built anew, with the student's weights in the place of the group's."""
    layers = (0, 2, 4) if name == "modernbert" else LAYERS
    made, teacher = pair(name, layers)
    with fixed(replacing(made, teacher), [False, True, False]).on(made, 0.0):
        found = outputs(made, tiny_batch)
    expected = student.from_teacher(teacher, [0, 1, 2, 4, 5], init="teacher_layers", seed=0).double().eval()
    families.layers(expected)[2].load_state_dict(families.layers(made)[1].state_dict())
    torch.testing.assert_close(found, outputs(expected, tiny_batch), rtol=0, atol=1e-12)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_the_attention_of_the_student_is_that_of_both(
    implementation: str, pair: Callable[..., tuple[Any, Any]], tiny_batch: dict[str, Tensor]
) -> None:
    made, teacher = pair("bert")
    whole = outputs(teacher, tiny_batch)
    made.set_attn_implementation(implementation)
    with fixed(replacing(made, teacher), [False] * 3).on(made, 0.0):
        torch.testing.assert_close(outputs(made, tiny_batch), whole, rtol=0, atol=1e-12)
    assert teacher.config._attn_implementation == implementation


def test_draws_are_independent_with_a_probability_that_rises_from_the_rate_to_one(
    pair: Callable[..., tuple[Any, Any]],
) -> None:
    part = replacing(*pair("bert"), rate=0.3, total=4000)
    draws = torch.tensor([part.drawn(3, step / 4000) for step in range(4000)]).double()
    for quarter, expected in enumerate((0.3875, 0.5625, 0.7375, 0.9125)):  # 0.3 + 0.7 x (quarter + 1/2) / 4
        mine = draws[1000 * quarter : 1000 * (quarter + 1)]
        assert mine.mean(0).tolist() == pytest.approx([expected] * 3, abs=0.05)  # three standard deviations
    early = draws[:1000]
    assert torch.corrcoef(early.T).triu(1).abs().max() < 0.1
    assert part.drawn(3, 1.0) == [True] * 3


def test_draws_depend_on_seed_and_step_alone(pair: Callable[..., tuple[Any, Any]]) -> None:
    """So that a training that resumes at any step goes on with the same draws, and all processes have the same."""
    models, total = pair("bert"), 997
    first, second, other = (replacing(*models, total=total, seed=seed) for seed in (7, 7, 8))
    steps = [first.drawn(6, step / total) for step in range(total)]
    assert [second.drawn(6, step / total) for step in reversed(range(total))] == steps[::-1]
    for step in (0, 1, 500, 996):
        drawn = np.random.default_rng([7, step]).random(6) < 0.5 + 0.5 * step / total
        assert steps[step] == drawn.tolist()
    assert [other.drawn(6, step / total) for step in range(9)] != steps[:9]


def test_the_layers_of_the_student_alone_are_trained_and_all_of_them_have_a_gradient(
    pair: Callable[..., tuple[Any, Any]], tiny_batch: dict[str, Tensor]
) -> None:
    made, teacher = pair("bert")
    part, before = replacing(made, teacher), {n: p.clone() for n, p in teacher.named_parameters()}
    term = {"supervised": Term(1.0, "logits", "labels", "all", losses.supervised)}
    objective = Objective(made, term, gates=part)
    assert [*objective.terms] == ["supervised"]
    assert not list(part.parameters())
    own = {id(parameter) for layer in families.layers(made) for parameter in layer.parameters()}
    assert {id(p) for p in objective.parameters() if p.requires_grad} == own
    batch = tiny_batch | {"labels": torch.tensor([0, 1])}
    for draws in ([False, False, False], [True, False, True], [True, True, True]):
        objective.zero_grad()
        fixed(part, draws)
        objective(batch).sum().backward()
        for layer, drawn in zip(families.layers(made), draws, strict=True):
            gradients = [parameter.grad for parameter in layer.parameters()]
            assert all(gradient is not None for gradient in gradients)
            # The bias of keys has no effect on a softmax, so that its gradient is 0.
            assert any(gradient.any() for gradient in gradients) == drawn
    assert all(parameter.grad is None for parameter in teacher.parameters())
    assert all(parameter.equal(before[name]) for name, parameter in teacher.named_parameters())


def test_the_gradient_of_a_drawn_layer_is_that_in_a_plain_model_with_the_layers_of_the_draw(
    pair: Callable[..., tuple[Any, Any]], tiny_batch: dict[str, Tensor]
) -> None:
    made, teacher = pair("bert")
    expected = student.from_teacher(teacher, [0, 1, 2, 4, 5], init="teacher_layers", seed=0).double().eval()
    layer, same = families.layers(made)[1], families.layers(expected)[2]
    same.load_state_dict(layer.state_dict())
    outputs(expected, tiny_batch).square().sum().backward()
    with fixed(replacing(made, teacher), [False, True, False]).on(made, 0.0):
        outputs(made, tiny_batch).square().sum().backward()
    for mine, other in zip(layer.parameters(), same.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=0, atol=1e-12)
