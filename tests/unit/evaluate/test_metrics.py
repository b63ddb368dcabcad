"""Metrics against scikit-learn and scipy; undefined metrics."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from distill.errors import UserError
from distill.evaluate.metrics import METRICS, predictions, score


def _sample(seed: int, classes: int, rows: int = 211) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, rows)
    # Correct more often than not: at chance level, a wrong sign would not show.
    logits = random.normal(size=(rows, classes)) + 1.3 * np.eye(classes)[labels]
    return logits.astype(np.float32), labels


@pytest.mark.parametrize("seed", range(5))
def test_binary_metrics_equal_scikit_learn(seed: int) -> None:
    logits, labels = _sample(seed, 2)
    predicted = logits.argmax(axis=1)
    assert METRICS["accuracy"](logits, labels) == pytest.approx(sk.accuracy_score(labels, predicted))
    assert METRICS["f1"](logits, labels) == pytest.approx(sk.f1_score(labels, predicted))
    assert METRICS["matthews"](logits, labels) == pytest.approx(sk.matthews_corrcoef(labels, predicted))


def test_matthews_of_many_classes_equals_scikit_learn() -> None:
    logits, labels = _sample(1, 5)
    expected = sk.matthews_corrcoef(labels, logits.argmax(axis=1))
    assert METRICS["matthews"](logits, labels) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(5))
def test_correlations_equal_scipy_with_ties(seed: int) -> None:
    random = np.random.default_rng(seed)
    labels = random.integers(0, 11, 150) / 2
    logits = np.round(labels + random.normal(size=150), 1)[:, None].astype(np.float32)
    pearson = stats.pearsonr(logits[:, 0].astype(np.float64), labels).statistic
    spearman = stats.spearmanr(logits[:, 0], labels).statistic
    assert METRICS["pearson"](logits, labels) == pytest.approx(pearson)
    assert METRICS["spearman"](logits, labels) == pytest.approx(spearman)


@pytest.mark.parametrize("predicted", [0, 1])
@pytest.mark.parametrize("true", [0, 1])
def test_constant_predictions_equal_scikit_learn_without_a_warning(predicted: int, true: int) -> None:
    logits = np.tile(np.eye(2, dtype=np.float32)[predicted], (6, 1))
    labels = np.full(6, true)
    assert METRICS["matthews"](logits, labels) == 0.0
    expected = sk.f1_score(labels, logits.argmax(axis=1), zero_division=0.0)
    assert METRICS["f1"](logits, labels) == expected


@pytest.mark.parametrize("metric", ["pearson", "spearman"])
@pytest.mark.parametrize("constant", [0.1, 1e6 + 1 / 3])
def test_a_constant_column_has_no_correlation(metric: str, constant: float) -> None:
    values = np.random.default_rng(0).normal(size=77)
    same = np.full(77, constant)
    assert METRICS[metric](same[:, None], values) == 0.0
    assert METRICS[metric](values[:, None], same) == 0.0


def test_one_row_has_no_correlation() -> None:
    assert METRICS["pearson"](np.array([[2.0]]), np.array([1.0])) == 0.0


def test_one_column_is_a_regression_and_more_are_classes() -> None:
    assert predictions(np.array([[0.5], [-2.0]])).tolist() == [0.5, -2.0]
    assert predictions(np.array([[0.5, 0.7], [3.0, -1.0]])).tolist() == [1, 0]
    assert predictions(np.array([4, 2])).tolist() == [4, 2]


def test_score_is_in_percent() -> None:
    logits = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    labels = np.array([1, 0, 0, 1])
    # 2 true positives, 1 false positive: precision 2/3, recall 1.
    assert score(["accuracy", "f1"], logits, labels) == pytest.approx({"accuracy": 75.0, "f1": 80.0})


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_logits_that_are_not_finite_are_refused(broken: float) -> None:
    logits, labels = _sample(0, 3)
    logits[[3, 8], 1] = broken
    with pytest.raises(UserError, match="got 2 rows of 211"):
        score(["accuracy"], logits, labels)
