"""Metrics against scikit-learn and scipy; undefined metrics."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from distill.errors import UserError
from distill.evaluate.metrics import METRICS, finite, score


def _sample(seed: int, classes: int, rows: int = 211) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, rows)
    # Correct more often than not: at chance level, a wrong sign would not show.
    logits = random.normal(size=(rows, classes)) + 1.3 * np.eye(classes)[labels]
    return logits.argmax(axis=1), labels


@pytest.mark.parametrize("seed", range(5))
def test_binary_metrics_equal_scikit_learn(seed: int) -> None:
    predicted, labels = _sample(seed, 2)
    assert METRICS["accuracy"](predicted, labels) == pytest.approx(sk.accuracy_score(labels, predicted))
    assert METRICS["f1"](predicted, labels) == pytest.approx(sk.f1_score(labels, predicted))
    assert METRICS["matthews"](predicted, labels) == pytest.approx(sk.matthews_corrcoef(labels, predicted))


@pytest.mark.parametrize("classes", [2, 5, 40])
def test_metrics_of_many_classes_equal_scikit_learn(classes: int) -> None:
    predicted, labels = _sample(1, classes, 97)
    assert METRICS["matthews"](predicted, labels) == pytest.approx(sk.matthews_corrcoef(labels, predicted))
    assert METRICS["f1_macro"](predicted, labels) == pytest.approx(sk.f1_score(labels, predicted, average="macro"))


def test_metrics_of_several_labels_equal_scikit_learn() -> None:
    random = np.random.default_rng(0)
    labels, predicted = random.integers(0, 2, (50, 7)), random.integers(0, 2, (50, 7))
    labels[:, 3] = predicted[:, 3] = 0  # a label that neither occurs nor is predicted
    expected = {name: sk.f1_score(labels, predicted, average=name, zero_division=0.0) for name in ("micro", "macro")}
    assert METRICS["f1_micro"](predicted, labels) == pytest.approx(expected["micro"])
    assert METRICS["f1_macro"](predicted, labels) == pytest.approx(expected["macro"])
    assert METRICS["accuracy"](predicted, labels) == pytest.approx(sk.accuracy_score(labels, predicted))


@pytest.mark.parametrize("seed", range(5))
def test_correlations_equal_scipy_with_ties(seed: int) -> None:
    random = np.random.default_rng(seed)
    labels = random.integers(0, 11, 150) / 2
    predicted = np.round(labels + random.normal(size=150), 1).astype(np.float32)
    pearson = stats.pearsonr(predicted.astype(np.float64), labels).statistic
    spearman = stats.spearmanr(predicted, labels).statistic
    assert METRICS["pearson"](predicted, labels) == pytest.approx(pearson)
    assert METRICS["spearman"](predicted, labels) == pytest.approx(spearman)


@pytest.mark.parametrize("predicted", [0, 1])
@pytest.mark.parametrize("true", [0, 1])
def test_constant_predictions_equal_scikit_learn_without_a_warning(predicted: int, true: int) -> None:
    constant, labels = np.full(6, predicted), np.full(6, true)
    assert METRICS["matthews"](constant, labels) == 0.0
    expected = sk.f1_score(labels, constant, zero_division=0.0)
    assert METRICS["f1"](constant, labels) == expected


@pytest.mark.parametrize("metric", ["pearson", "spearman"])
@pytest.mark.parametrize("constant", [0.1, 1e6 + 1 / 3])
def test_a_constant_column_has_no_correlation(metric: str, constant: float) -> None:
    values = np.random.default_rng(0).normal(size=77)
    same = np.full(77, constant)
    assert METRICS[metric](same, values) == 0.0
    assert METRICS[metric](values, same) == 0.0


def test_one_row_has_no_correlation() -> None:
    assert METRICS["pearson"](np.array([2.0]), np.array([1.0])) == 0.0


def test_score_is_in_percent() -> None:
    predicted, labels = np.array([1, 0, 1, 1]), np.array([1, 0, 0, 1])
    # 2 true positives, 1 false positive: precision 2/3, recall 1.
    assert score(["accuracy", "f1"], predicted, labels) == pytest.approx({"accuracy": 75.0, "f1": 80.0})


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_logits_that_are_not_finite_are_refused(broken: float) -> None:
    outputs = np.zeros((211, 3), np.float32)
    outputs[[3, 8], 1] = broken
    with pytest.raises(UserError, match="got 2 rows of 211"):
        finite(outputs)
