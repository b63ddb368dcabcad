"""Averages of several outputs, against probabilities averaged in float64."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import softmax

from distill.inference.mixture import average, average_by_text, fit

RANDOM = np.random.default_rng(0)
LOGITS = [RANDOM.normal(scale=3, size=(50, 4)).astype(np.float32) for _ in range(3)]
LABELS = RANDOM.integers(0, 4, 50)


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 5.0], [0.0, 1.0, 0.0]])
def test_probabilities_are_averaged(weights: list[float] | None) -> None:
    share = np.array(weights or [1, 1, 1], float)
    expected = np.tensordot(share / share.sum(), [softmax(logits.astype(float), 1) for logits in LOGITS], 1)
    np.testing.assert_allclose(softmax(average(LOGITS, weights).astype(float), 1), expected, rtol=1e-5, atol=1e-9)


def test_a_single_teacher_is_returned_unchanged() -> None:
    probabilities = softmax(LOGITS[0].astype(float), 1)
    assert np.array_equal(average(LOGITS[:1]), LOGITS[0])
    np.testing.assert_allclose(softmax(average([LOGITS[0]] * 2).astype(float), 1), probabilities, rtol=1e-5)


def test_rows_are_centred() -> None:
    """A loss on logits then depends on differences within a row only."""
    np.testing.assert_allclose(average(LOGITS).mean(1), 0, atol=1e-5)
    np.testing.assert_allclose(average_by_text(LOGITS[0], np.arange(50)).mean(1), 0, atol=1e-5)


def test_a_probability_too_small_for_a_float_is_finite() -> None:
    sure = np.array([[1000.0, 0.0]], np.float32)
    np.testing.assert_allclose(average([sure, sure]), [[500.0, -500.0]])
    np.testing.assert_allclose(average_by_text(np.repeat(sure, 2, 0), np.array([0, 0])), [[500.0, -500.0]])


def test_outputs_of_a_regression_are_averaged() -> None:
    parts = [logits[:, :1] for logits in LOGITS]
    np.testing.assert_allclose(average(parts, [1, 1, 2]), (parts[0] + parts[1] + 2 * parts[2]) / 4, rtol=1e-5)


def test_windows_are_averaged_text_by_text() -> None:
    owner = np.array([0] * 3 + [1] + [2] * 6)
    rows = LOGITS[0][:10]
    for text in range(3):
        alone = softmax(rows[owner == text].astype(float), 1).mean(0)
        np.testing.assert_allclose(softmax(average_by_text(rows, owner)[text].astype(float)), alone, rtol=1e-5)
        mean = rows[owner == text, :1].mean(0)
        np.testing.assert_allclose(average_by_text(rows[:, :1], owner)[text], mean, rtol=1e-5)


def test_weights_are_those_that_an_optimizer_finds() -> None:
    likelihood = np.stack([softmax(logits.astype(float), 1)[np.arange(50), LABELS] for logits in LOGITS])
    best = minimize(lambda free: -np.log(softmax(free) @ likelihood).mean(), np.zeros(3), tol=1e-12)
    np.testing.assert_allclose(fit(LOGITS, LABELS), softmax(best.x), atol=1e-3)
    values = RANDOM.normal(size=50).astype(np.float32)
    outputs = [(values + RANDOM.normal(scale=scale, size=50)).astype(np.float32)[:, None] for scale in (0.5, 1, 2)]

    def error(free: np.ndarray) -> float:
        return float(((softmax(free) @ np.stack(outputs)[:, :, 0] - values) ** 2).mean())

    np.testing.assert_allclose(fit(outputs, values), softmax(minimize(error, np.zeros(3), tol=1e-12).x), atol=2e-3)
