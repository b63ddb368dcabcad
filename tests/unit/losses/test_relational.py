"""Losses on relations among the rows of a batch, against float64 numpy, row by row, pair by pair, triplet by triplet"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import permutations
from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import pearsonr
from torch import Tensor

from distill import losses
from distill.config.feature_kinds import BATCH_LOSSES
from distill.data.task_types import ABSENT
from distill.losses import relational

Array = NDArray[np.float64]


def softmax(z: Array) -> Array:
    exponentials = np.exp(z - z.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def intra(student: Array, teacher: Array, temperature: float) -> Array:
    p, q = softmax(student / temperature), softmax(teacher / temperature)
    return np.array([temperature**2 * (1 - pearsonr(ours, its).statistic) for ours, its in zip(p.T, q.T, strict=True)])


def huber(x: float) -> float:
    return x * x / 2 if abs(x) <= 1 else abs(x) - 0.5


def distance(student: Array, teacher: Array) -> Array:
    pairs = list(permutations(range(len(student)), 2))
    ours, its = ({(i, j): float(np.linalg.norm(v[i] - v[j])) for i, j in pairs} for v in (student, teacher))
    means = np.mean([*ours.values()]), np.mean([*its.values()])
    value = {pair: huber(ours[pair] / means[0] - its[pair] / means[1]) for pair in pairs}
    return np.array([np.mean([value[i, j] for j in range(len(student)) if j != i]) for i in range(len(student))])


def cosine(v: Array, i: int, j: int, k: int) -> float:
    first, second = v[i] - v[j], v[k] - v[j]
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


def angle(student: Array, teacher: Array) -> Array:
    values: dict[int, list[float]] = {}
    for i, j, k in permutations(range(len(student)), 3):
        values.setdefault(j, []).append(huber(cosine(student, i, j, k) - cosine(teacher, i, j, k)))
    return np.array([np.mean(values[j]) for j in range(len(student))])


class Row(NamedTuple):
    call: Callable[..., Tensor]
    oracle: Callable[..., Array]
    width: int = 7
    """Of the teacher; the student's is 7."""


ROWS = {
    "intra_class": Row(partial(losses.intra_class, temperature=2.5), partial(intra, temperature=2.5)),
    "distances": Row(losses.distances, distance, width=4),
    "angles": Row(losses.angles, angle, width=4),
}
N = 9


def case(name: str, dtype: torch.dtype = torch.float64, rows: int = N) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    student = 2 * torch.randn(rows, 7, generator=generator, dtype=torch.float64)
    teacher = 2 * torch.randn(rows, ROWS[name].width, generator=generator, dtype=torch.float64)
    return student.to(dtype), teacher.to(dtype)


def test_the_losses_of_a_batch_are_those_that_settings_know_as_such() -> None:
    marked = {name for name in losses.__all__ if hasattr(getattr(losses, name), "of_batch")}
    assert set(ROWS) == marked == {name.removeprefix("distill.losses.") for name in BATCH_LOSSES}


@pytest.mark.parametrize("block", [1, 2**24])
@pytest.mark.parametrize("name", ROWS)
def test_oracle(name: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relational, "BLOCK", block)
    student, teacher = case(name)
    actual = ROWS[name].call(student, teacher)
    np.testing.assert_allclose(actual.numpy(), ROWS[name].oracle(student.numpy(), teacher.numpy()), rtol=1e-10)


@pytest.mark.parametrize("block", [1, 2**24])
@pytest.mark.parametrize("name", ROWS)
def test_gradient_of_the_student(name: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relational, "BLOCK", block)
    student, teacher = case(name, rows=5)
    teacher.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: ROWS[name].call(s, teacher), student.requires_grad_())
    ROWS[name].call(student, teacher).sum().backward()
    assert teacher.grad is None


@pytest.mark.parametrize("name", ROWS)
def test_zero_for_a_copy_and_positive_elsewhere(name: str) -> None:
    student, teacher = case(name)
    equal = ROWS[name].call(student.requires_grad_(), student.detach().clone())
    equal.sum().backward()
    assert student.grad is not None
    torch.testing.assert_close(equal, torch.zeros_like(equal), rtol=0, atol=1e-12)
    torch.testing.assert_close(student.grad, torch.zeros_like(student), rtol=0, atol=1e-12)
    assert (ROWS[name].call(student.detach(), teacher) > 1e-4).all()


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_computed_in_float32_also_under_autocast(name: str, dtype: torch.dtype) -> None:
    student, teacher = case(name, dtype)
    with torch.autocast("cpu", torch.bfloat16):
        actual = ROWS[name].call(student.requires_grad_(), teacher)
        actual.sum().backward()
    assert actual.dtype == torch.float32
    exact = ROWS[name].oracle(student.detach().double().numpy(), teacher.double().numpy())
    np.testing.assert_allclose(actual.detach().numpy(), exact, rtol=1e-4, atol=1e-6)
    assert student.grad is not None
    assert student.grad.dtype == dtype


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("rows", [0, 1])
def test_a_batch_of_one_row_or_none_is_0_with_a_finite_gradient(name: str, rows: int) -> None:
    student, teacher = case(name, rows=rows)
    values = ROWS[name].call(student.requires_grad_(), teacher)
    values.sum().backward()
    assert (values == 0).all()
    assert student.grad is not None
    assert student.grad.isfinite().all()


@pytest.mark.parametrize("name", ROWS)
def test_equal_rows_and_rows_that_do_not_vary_have_finite_gradients(name: str) -> None:
    """Texts may come twice, and an untrained student may give all of them the same output."""
    student, teacher = case(name, torch.float32)
    twice = torch.tensor([0, 1, 1, 2, 3, 3, 3])
    for ours, its in ((student[twice], teacher[twice]), (student[:1].expand(7, -1), teacher[twice])):
        given = ours.clone().requires_grad_()
        values = ROWS[name].call(given, its)
        values.sum().backward()
        assert values.isfinite().all()
        assert given.grad is not None
        assert given.grad.abs().max() < 100


@pytest.mark.parametrize("name", ROWS)
def test_the_order_of_the_rows_does_not_matter(name: str) -> None:
    student, teacher = case(name)
    order = torch.randperm(N, generator=torch.Generator().manual_seed(0))
    mean = ROWS[name].call(student, teacher).mean()
    torch.testing.assert_close(ROWS[name].call(student[order], teacher[order]).mean(), mean)


@pytest.mark.parametrize("name", ["distances", "angles"])
def test_vectors_that_are_turned_moved_and_scaled_have_the_same_distances_and_angles(name: str) -> None:
    student, teacher = case(name)
    rotation, _ = torch.linalg.qr(torch.randn(7, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    moved = 3.5 * student @ rotation + 40
    expected = ROWS[name].call(student, teacher)
    torch.testing.assert_close(ROWS[name].call(moved, teacher), expected)
    torch.testing.assert_close(ROWS[name].call(moved, student), torch.zeros_like(expected))
    # In float32 too, where a part that all vectors share is large, as in a transformer.
    far = (student + 1000).float()
    torch.testing.assert_close(ROWS[name].call(far, teacher.float()), expected.float(), rtol=1e-2, atol=1e-3)


def test_angles_leave_out_what_the_teacher_has_at_the_same_place() -> None:
    """Of texts that come twice; the other triplets count as without them."""
    student, teacher = case("angles")
    teacher[-1] = teacher[0]
    assert losses.angles(student, teacher)[0] == pytest.approx(losses.angles(student[:-1], teacher[:-1])[0])


@pytest.mark.parametrize("name", ["inter_class", "intra_class"])
def test_probabilities_are_compared_up_to_scale_and_shift(name: str) -> None:
    """Of each row, and of each class over all rows; and logits up to a shift."""
    call = partial(getattr(losses, name), temperature=1.0)
    student, teacher = case("intra_class")
    torch.testing.assert_close(call(student + torch.arange(N)[:, None], teacher), call(student, teacher))
    flatter = (teacher.softmax(dim=-1) + 0.3).log() + 2  # a softmax of which (p + 0.3) / (1 + 0.3 C)
    torch.testing.assert_close(call(flatter, teacher), torch.zeros(N if name == "inter_class" else 7).double())


def test_what_the_teacher_does_not_vary_is_not_compared() -> None:
    student, teacher = case("intra_class", torch.float32)
    teacher[:] = teacher[0]
    assert (losses.intra_class(student, teacher, temperature=2.0) == 0).all()
    assert (losses.inter_class(student, torch.zeros_like(teacher), temperature=2.0) == 0).all()
    # A student that does not vary is as bad as one whose outputs have nothing to do with the teacher's.
    student, teacher = case("intra_class", torch.float32)
    assert (losses.intra_class(student[:1].expand(N, -1), teacher, temperature=1.0) == 1).all()


def test_choices_that_a_row_does_not_have_are_no_classes() -> None:
    student, teacher = case("intra_class")
    expected = losses.inter_class(student[:, :4], teacher[:, :4], temperature=1.5)
    student[:, 4:], teacher[:, 4:] = ABSENT, ABSENT
    torch.testing.assert_close(losses.inter_class(student, teacher, temperature=1.5), expected)


def test_of_one_column_the_outputs_are_compared() -> None:
    student, teacher = (given[:, :1] for given in case("intra_class"))
    expected = 1 - pearsonr(student.squeeze(1), teacher.squeeze(1)).statistic
    assert losses.intra_class(student, teacher, temperature=3.0).tolist() == pytest.approx([expected])
    squares = (student - teacher).squeeze(1).square()
    torch.testing.assert_close(losses.inter_class(student, teacher, temperature=3.0), squares)
