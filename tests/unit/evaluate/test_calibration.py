"""Expected calibration error against a plain loop and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from distill.evaluate.calibration import expected_calibration_error


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
    assert expected_calibration_error(logits, labels) == pytest.approx(expected, abs=1e-12)


def test_by_hand_with_huge_logits() -> None:
    logits = np.array([[1e4, -1e4]] * 4, dtype=np.float32)
    assert expected_calibration_error(logits, np.array([0, 0, 0, 1])) == pytest.approx(0.25)


def test_a_calibrated_model_has_no_error() -> None:
    logits = np.log(np.array([[0.75, 0.25]] * 4))
    assert expected_calibration_error(logits, np.array([0, 0, 0, 1])) == pytest.approx(0.0, abs=1e-12)


def test_a_regression_has_no_confidence() -> None:
    with pytest.raises(ValueError, match="C > 1"):
        expected_calibration_error(np.zeros((3, 1)), np.zeros(3))
