"""Linear CKA against its formula with the unbiased HSIC, written down term by term."""

from __future__ import annotations

import numpy as np
import pytest

from distill.evaluation.cka import LEAST, linear_cka


def hsic(x: np.ndarray, y: np.ndarray) -> float:
    """Song et al. 2012: tr(K L) + 1'K1 1'L1 / ((n - 1)(n - 2)) - 2 / (n - 2) 1'K L1, over n (n - 3), zero diagonals."""
    k, l = (states.astype(np.float64) @ states.astype(np.float64).T for states in (x, y))  # noqa: E741
    np.fill_diagonal(k, 0)
    np.fill_diagonal(l, 0)
    n, ones = len(k), np.ones(len(k))
    middle = (ones @ k @ ones) * (ones @ l @ ones) / ((n - 1) * (n - 2))
    return float((np.trace(k @ l) + middle - 2 / (n - 2) * (ones @ k @ l @ ones)) / (n * (n - 3)))


@pytest.mark.parametrize("tokens", [LEAST, 5, 40])
@pytest.mark.parametrize("shared", [0.0, 1.0])
def test_it_is_the_formula(tokens: int, shared: float) -> None:
    random = np.random.default_rng(tokens)
    a = random.normal(size=(tokens, 6)).astype(np.float32)
    b = random.normal(size=(tokens, 9)) + shared * a @ random.normal(size=(6, 9)) + 3
    expected = hsic(a, b) / np.sqrt(hsic(a, a) * hsic(b, b))
    assert linear_cka(a, b) == pytest.approx(expected, abs=1e-9)
    assert linear_cka(b, a) == pytest.approx(expected, abs=1e-9)


def test_a_rotation_a_scale_and_a_shift_change_nothing() -> None:
    random = np.random.default_rng(0)
    a = random.normal(size=(12, 8))
    rotation = np.linalg.qr(random.normal(size=(8, 8)))[0]
    assert linear_cka(a, a) == pytest.approx(1)
    assert linear_cka(a, 7 * a @ rotation + 100) == pytest.approx(1)


def test_layers_without_anything_in_common_are_near_0_however_wide() -> None:
    random = np.random.default_rng(0)
    a, b = random.normal(size=(2, 12, 768))
    plain = [states - states.mean(0) for states in (a, b)]
    k, l = (states @ states.T for states in plain)  # noqa: E741
    assert (k * l).sum() / np.sqrt((k * k).sum() * (l * l).sum()) > 0.9, "the plain estimator"
    found = linear_cka(a, b)
    assert found is not None
    assert abs(found) < 0.3


def test_too_few_tokens_and_equal_states_have_none() -> None:
    states = np.random.default_rng(0).normal(size=(5, 3))
    assert linear_cka(states[:3], states[:3]) is None
    assert linear_cka(states, np.full((5, 2), 0.1)) is None
    assert linear_cka(np.zeros((5, 2)), states) is None
