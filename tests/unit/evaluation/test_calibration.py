"""Calibration against a plain loop, scikit-learn and by hand; temperatures against logits of a known one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.calibration import calibration_curve

from distill.evaluation.calibration import (
    HIGHEST,
    described,
    error_of,
    reliability,
    temperature,
)


def test_equals_a_plain_loop_over_the_bins() -> None:
    random = np.random.default_rng(0)
    logits, labels = random.normal(size=(400, 3)) * 3, random.integers(0, 3, 400)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    confidence, correct = shares.max(axis=1), logits.argmax(axis=1) == labels
    expected = 0.0
    for k in range(15):
        inside = (confidence > k / 15) & (confidence <= (k + 1) / 15)
        if inside.any():
            expected += inside.mean() * abs(confidence[inside].mean() - correct[inside].mean())
    assert error_of(reliability(logits, labels)) == pytest.approx(expected, abs=1e-12)


def test_by_hand_with_huge_logits() -> None:
    logits = np.array([[1e4, -1e4]] * 4, dtype=np.float32)
    assert error_of(reliability(logits, np.array([0, 0, 0, 1]))) == pytest.approx(0.25)


def test_a_calibrated_model_has_no_error() -> None:
    logits = np.log(np.array([[0.75, 0.25]] * 4))
    assert error_of(reliability(logits, np.array([0, 0, 0, 1]))) == pytest.approx(0.0, abs=1e-12)


def test_a_regression_has_no_confidence() -> None:
    with pytest.raises(ValueError, match="C > 1"):
        reliability(np.zeros((3, 1)), np.zeros(3))


def sample(sharpness: float, rows: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Logits of three classes, and labels drawn from the softmax of the logits divided by `sharpness`."""
    random = np.random.default_rng(0)
    calibrated = random.normal(size=(rows, 3)) * 2
    shares = np.exp(calibrated) / np.exp(calibrated).sum(axis=1, keepdims=True)
    labels = (random.random((rows, 1)) > shares.cumsum(axis=1)).sum(axis=1)
    return calibrated * sharpness, labels


@pytest.mark.parametrize("sharpness", [0.4, 1.0, 3.0])
def test_the_temperature_undoes_what_sharpened_the_logits(sharpness: float) -> None:
    logits, labels = sample(sharpness)
    found = temperature(logits, labels)
    assert found == pytest.approx(sharpness, rel=0.06)
    by_torch = torch.nn.functional.cross_entropy
    at = [float(by_torch(torch.tensor(logits / t), torch.tensor(labels))) for t in (found, 0.99 * found, 1.01 * found)]
    assert at[0] == min(at)


def test_scaling_makes_an_overconfident_model_calibrated() -> None:
    logits, labels = sample(3.0)
    before = described(logits, labels, None)
    assert before.temperature is before.ece_scaled is None
    assert before.bins_scaled == []
    after = described(logits, labels, temperature(logits, labels))
    assert after.ece == before.ece == pytest.approx(error_of(reliability(logits, labels)))
    assert after.ece_scaled < 0.02 < 0.1 < after.ece
    assert after.bins == before.bins != after.bins_scaled
    for bins in (after.bins, after.bins_scaled):
        rows = [row for *_, row in bins]
        assert sum(rows) == len(labels)
        accuracy = sum(right * row for (_, right, row) in bins) / len(labels)
        assert accuracy == pytest.approx((logits.argmax(axis=1) == labels).mean(), abs=1e-4)


def test_the_diagram_is_that_of_scikit_learn() -> None:
    """For two classes: the share of class 1 by its probability, where it is the predicted class."""
    random = np.random.default_rng(1)
    logits, labels = random.normal(size=(500, 2)), random.integers(0, 2, 500)
    chosen = logits[:, 1] > logits[:, 0]
    probability = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
    accuracy, confidence = calibration_curve(labels[chosen], probability[chosen], n_bins=15)
    found = reliability(logits[chosen], labels[chosen])
    assert [row[0] for row in found] == pytest.approx(confidence)
    assert [row[1] for row in found] == pytest.approx(accuracy)


def test_the_temperature_of_a_perfect_model_is_bounded() -> None:
    logits = np.array([[4.0, 0.0], [0.0, 4.0]])
    assert temperature(logits, np.array([0, 1])) is None  # no confidence would be too high
    assert temperature(logits, np.array([1, 0])) == pytest.approx(HIGHEST, rel=0.01)
