"""Statistics of two models, against formulas written out and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import f1_score, recall_score

from distill.cli.compare import statistics


def flags(*values: int) -> np.ndarray:
    return np.array(values, np.bool_)


def test_bootstrap_interval_is_that_of_the_mean_paired_difference() -> None:
    """For accuracy, the interval of a difference is known: its standard error is that of the mean of -1, 0 and 1."""
    random = np.random.default_rng(1)
    targets = random.integers(0, 2, 2000)
    a, b = (np.where(random.random(2000) < right, targets, 1 - targets) for right in (0.9, 0.8))
    paired = (b == targets).astype(float) - (a == targets)
    error = 1.96 * paired.std() / np.sqrt(len(paired))
    low, high = statistics.bootstrap(["accuracy"], a, b, targets)["accuracy"]
    assert (low, high) == pytest.approx((100 * (paired.mean() - error), 100 * (paired.mean() + error)), abs=0.3)


def test_bootstrap_is_paired_and_seeded() -> None:
    targets = np.random.default_rng(0).integers(0, 3, 50)
    a = (targets + (np.arange(50) % 4 == 0)) % 3
    assert statistics.bootstrap(["accuracy"], a, a, targets)["accuracy"] == [0, 0]
    assert statistics.bootstrap(["accuracy"], a, targets, targets) == statistics.bootstrap(
        ["accuracy"], a, targets, targets
    )


def test_share_has_wilsons_interval() -> None:
    n, p, z = 20, 0.9, 1.959964
    centre, half = p + z**2 / (2 * n), z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    expected = [100 * (centre + sign * half) / (1 + z**2 / n) for sign in (-1, 1)]
    result = statistics.share(flags(*[1] * 18, 0, 0))
    assert (result["percent"], result["ci95"]) == (pytest.approx(90), pytest.approx(expected))


def test_per_label_is_that_of_scikit_learn() -> None:
    random = np.random.default_rng(3)
    targets, predicted = random.integers(0, 4, 80), random.integers(0, 4, 80)
    result = statistics.per_label(predicted[:, None] == np.arange(4), targets[:, None] == np.arange(4))
    assert [row["recall"] for row in result] == pytest.approx(100 * recall_score(targets, predicted, average=None))
    assert [row["f1"] for row in result] == pytest.approx(100 * f1_score(targets, predicted, average=None))


def test_per_label_of_a_label_that_does_not_occur_has_no_value() -> None:
    predicted, targets = np.zeros((3, 2), np.bool_), np.zeros((3, 2), np.bool_)
    predicted[0, 1] = True
    assert statistics.per_label(predicted, targets) == [{"recall": None, "f1": None}, {"recall": None, "f1": 0}]


def test_largest_rows_come_first() -> None:
    assert statistics.largest(np.array([0.1, 0.9, 0.5, 0.9]), 3).tolist() == [1, 3, 2]
    assert statistics.largest(np.array([0.1]), 10).tolist() == [0]
