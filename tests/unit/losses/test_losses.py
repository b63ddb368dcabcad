"""Every loss against float64 numpy, and the properties that hold for all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import jensenshannon
from scipy.special import rel_entr
from scipy.stats import pearsonr
from torch import Tensor

from distill import losses
from distill.losses import logits as logits_module

Array = NDArray[np.float64]


def log_softmax(z: Array) -> Array:
    shifted = z - z.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def kl(student: Array, teacher: Array, temperature: float) -> Array:
    log_s, log_t = log_softmax(student / temperature), log_softmax(teacher / temperature)
    return temperature**2 * (np.exp(log_t) * (log_t - log_s)).sum(axis=-1)


def probabilities(z: Array, temperature: float) -> Array:
    return np.exp(log_softmax(z / temperature))


def reverse(student: Array, teacher: Array, temperature: float) -> Array:
    p, q = probabilities(student, temperature), probabilities(teacher, temperature)
    return temperature**2 * rel_entr(p, q).sum(axis=-1)


def skewed(student: Array, teacher: Array, temperature: float, skew: float) -> Array:
    p, q = probabilities(student, temperature), probabilities(teacher, temperature)
    return temperature**2 * rel_entr(q, skew * q + (1 - skew) * p).sum(axis=-1)


def halfway(student: Array, teacher: Array, temperature: float) -> Array:
    p, q = probabilities(student, temperature), probabilities(teacher, temperature)
    return temperature**2 * jensenshannon(q, p, axis=-1) ** 2


def decoupled(student: Array, teacher: Array, temperature: float, target: float, others: float) -> Array:
    """Row by row, with the class of the teacher taken out."""
    values = []
    for p, q in zip(probabilities(student, temperature), probabilities(teacher, temperature), strict=True):
        top = int(np.argmax(q))
        binary = rel_entr([q[top], 1 - q[top]], [p[top], 1 - p[top]]).sum()
        rest_p, rest_q = np.delete(p, top), np.delete(q, top)
        rest = rel_entr(rest_q / rest_q.sum(), rest_p / rest_p.sum()).sum()
        values.append(temperature**2 * (target * binary + others * rest))
    return np.array(values)


def correlated(student: Array, teacher: Array, temperature: float) -> Array:
    both = zip(probabilities(student, temperature), probabilities(teacher, temperature), strict=True)
    return np.array([temperature**2 * (1 - pearsonr(p, q).statistic) for p, q in both])


def cross_entropy(student: Array, labels: NDArray[np.int64]) -> Array:
    return -log_softmax(student)[np.arange(len(labels)), labels]


def one_minus_cosine(student: Array, teacher: Array) -> Array:
    norms = np.linalg.norm(student, axis=-1) * np.linalg.norm(teacher, axis=-1)
    return 1 - (student * teacher).sum(axis=-1) / norms


def mean_square(student: Array, teacher: Array) -> Array:
    return ((student - teacher) ** 2).mean(axis=-1)


class Row(NamedTuple):
    """Contract table: how to call a loss, and the oracle. `labels`: the target is class numbers."""

    call: Callable[..., Tensor]
    oracle: Callable[..., Array]
    labels: bool = False


ROWS = {
    "soft_targets": Row(partial(losses.soft_targets, temperature=2.5), partial(kl, temperature=2.5)),
    "reverse_kl": Row(partial(losses.reverse_kl, temperature=2.5), partial(reverse, temperature=2.5)),
    "skewed_kl": Row(partial(losses.skewed_kl, temperature=1.5, skew=0.1), partial(skewed, temperature=1.5, skew=0.1)),
    "jensen_shannon": Row(
        partial(losses.jensen_shannon, temperature=0.5, share=0.5), partial(halfway, temperature=0.5)
    ),
    "decoupled_kl": Row(
        partial(losses.decoupled_kl, temperature=2.0, target=0.5, others=3.0),
        partial(decoupled, temperature=2.0, target=0.5, others=3.0),
    ),
    "inter_class": Row(partial(losses.inter_class, temperature=2.5), partial(correlated, temperature=2.5)),
    "supervised": Row(losses.supervised, cross_entropy, labels=True),
    "mlm": Row(losses.mlm, cross_entropy, labels=True),
    "cosine": Row(losses.cosine, one_minus_cosine),
    "mse": Row(losses.mse, mean_square),
}
TO_TEACHER = [name for name, row in ROWS.items() if not row.labels]
N, C = 13, 7


def case(name: str, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    student = 3 * torch.randn(N, C, generator=generator, dtype=torch.float64)
    if ROWS[name].labels:
        return student.to(dtype), torch.randint(C, (N,), generator=generator)
    return student.to(dtype), (student + torch.randn(N, C, generator=generator, dtype=torch.float64)).to(dtype)


def test_every_loss_has_a_row() -> None:
    """Those that compare rows with each other have one in test_relational.py."""
    assert set(ROWS) == {name for name in losses.__all__ if not hasattr(getattr(losses, name), "of_batch")}


@pytest.mark.parametrize("name", ROWS)
def test_oracle(name: str) -> None:
    student, target = case(name)
    actual = ROWS[name].call(student, target)
    assert actual.dtype == torch.float64
    np.testing.assert_allclose(
        actual.numpy(), ROWS[name].oracle(student.numpy(), target.numpy()), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("name", ROWS)
def test_bf16_is_computed_in_float32(name: str) -> None:
    student, target = case(name, torch.bfloat16)
    exact = (target if ROWS[name].labels else target.double()).numpy()
    actual = ROWS[name].call(student.requires_grad_(), target)
    assert actual.dtype == torch.float32
    oracle = ROWS[name].oracle(student.detach().double().numpy(), exact)
    np.testing.assert_allclose(actual.detach().numpy(), oracle, rtol=1e-5, atol=1e-5)
    actual.sum().backward()
    assert student.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("name", ROWS)
def test_autocast_changes_nothing(name: str) -> None:
    student, target = case(name, torch.float32)
    expected = ROWS[name].call(student, target)
    with torch.autocast("cpu", torch.bfloat16):
        actual = ROWS[name].call(student, target)
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ROWS)
def test_gradient_of_the_student(name: str) -> None:
    student, target = case(name)
    assert torch.autograd.gradcheck(lambda s: ROWS[name].call(s, target), student.requires_grad_())


@pytest.mark.parametrize("name", TO_TEACHER)
def test_zero_at_equality_and_positive_elsewhere(name: str) -> None:
    student, teacher = case(name)
    equal = ROWS[name].call(student.requires_grad_(), student.detach().clone())
    torch.testing.assert_close(equal, torch.zeros_like(equal), rtol=0, atol=1e-12)
    equal.sum().backward()
    torch.testing.assert_close(student.grad, torch.zeros_like(student), rtol=0, atol=1e-12)
    assert (ROWS[name].call(student.detach(), teacher) > 1e-4).all()


@pytest.mark.parametrize("name", TO_TEACHER)
def test_no_gradient_reaches_the_teacher(name: str) -> None:
    student, teacher = case(name)
    teacher.requires_grad_()
    ROWS[name].call(student.requires_grad_(), teacher).sum().backward()
    assert student.grad.abs().sum() > 0
    assert teacher.grad is None


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_independent_and_may_be_absent(name: str) -> None:
    student, target = case(name)
    whole = ROWS[name].call(student, target)
    order = torch.randperm(N, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ROWS[name].call(student[order], target[order]), whole[order])
    assert ROWS[name].call(student[:0], target[:0]).shape == (0,)


@pytest.mark.parametrize("name", ["soft_targets", "mlm"])
@pytest.mark.parametrize("block", [1, C, 5 * C, 100 * C])
def test_the_size_of_a_block_does_not_matter(name: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for size in (2**18, block):
        monkeypatch.setattr(logits_module, "CPU_BLOCK", size)
        student, target = case(name)
        values = ROWS[name].call(student.requires_grad_(), target)
        values.sum().backward()
        results.append((values.detach(), student.grad))
    torch.testing.assert_close(results[0], results[1], rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 8.0])
def test_soft_targets_at_other_temperatures(temperature: float) -> None:
    student, teacher = case("soft_targets")
    actual = losses.soft_targets(student, teacher, temperature=temperature)
    np.testing.assert_allclose(actual.numpy(), kl(student.numpy(), teacher.numpy(), temperature), rtol=1e-11)


def test_soft_targets_at_a_high_temperature_match_logits() -> None:
    """Hinton et al. 2015, section 2.1: centred logits, T large -> half the squared distance / C."""
    student, teacher = (z - z.mean(dim=-1, keepdim=True) for z in case("soft_targets"))
    expected = (student - teacher).square().sum(dim=-1) / (2 * C)
    torch.testing.assert_close(losses.soft_targets(student, teacher, temperature=1e3), expected, rtol=1e-2, atol=0)


def test_a_shift_of_the_logits_changes_no_distribution() -> None:
    student, teacher = case("soft_targets", torch.float32)
    shifted = losses.soft_targets(student + 50, teacher - 30, temperature=2.0)
    torch.testing.assert_close(shifted, losses.soft_targets(student, teacher, temperature=2.0), rtol=1e-3, atol=1e-4)


def test_divergences_become_the_kl_divergence() -> None:
    """A Jensen-Shannon divergence divided by its share near 0, a skewed one near 0, and the sum of decoupled parts."""
    student, teacher = case("soft_targets")
    expected = losses.soft_targets(student, teacher, temperature=2.0)
    with_share = losses.jensen_shannon(student, teacher, temperature=2.0, share=1e-9) / 1e-9
    torch.testing.assert_close(with_share, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(losses.skewed_kl(student, teacher, temperature=2.0, skew=1e-9), expected)
    parts = [
        losses.decoupled_kl(student, teacher, temperature=2.0, target=target, others=1 - target) for target in (1, 0)
    ]
    others = 1 - (teacher / 2.0).softmax(dim=-1).amax(dim=-1)
    torch.testing.assert_close(parts[0] + others * parts[1], expected)
    torch.testing.assert_close(
        losses.reverse_kl(student, teacher, temperature=2.0), losses.soft_targets(teacher, student, temperature=2.0)
    )


@pytest.mark.parametrize("name", ["reverse_kl", "skewed_kl", "jensen_shannon", "decoupled_kl"])
def test_divergences_are_finite_where_a_probability_is_0(name: str) -> None:
    student, teacher = torch.tensor([[200.0, 0.0, -200.0]] * 2), torch.tensor([[-200.0, 0.0, 200.0], [200.0, 0.0, 0.0]])
    values = ROWS[name].call(student.requires_grad_(), teacher)
    values.sum().backward()
    assert values.isfinite().all()
    assert student.grad is not None
    assert student.grad.isfinite().all()
    one = torch.tensor([[1.0], [3.0]]), torch.tensor([[0.5], [5.0]])
    torch.testing.assert_close(ROWS[name].call(*one), torch.tensor([0.25, 4.0]))


def test_one_column_is_squared_error() -> None:
    student, teacher = torch.tensor([[1.0], [3.0]]), torch.tensor([[0.5], [5.0]])
    expected = torch.tensor([0.25, 4.0])
    torch.testing.assert_close(losses.soft_targets(student, teacher, temperature=4.0), expected)
    torch.testing.assert_close(losses.supervised(student, teacher.squeeze(1)), expected)
    torch.testing.assert_close(losses.supervised(student, torch.tensor([1, 5])), torch.tensor([0.0, 4.0]))


def test_opposite_directions_are_two_apart() -> None:
    hidden = torch.tensor([[1.0, -2.0, 0.5]])
    torch.testing.assert_close(losses.cosine(hidden, -3 * hidden), torch.tensor([2.0]))
