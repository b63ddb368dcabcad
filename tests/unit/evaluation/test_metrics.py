"""Metrics against scikit-learn and scipy; undefined metrics."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from distill.data.task_types import TASK_TYPES
from distill.data.task_types.task_type import grouped
from distill.errors import UserError
from distill.evaluation.metrics import METRICS, finite, score


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


def _groups(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of documents, and their labels by query in random order; one query has no relevant document."""
    random = np.random.default_rng(seed)
    group = random.permutation(np.repeat(np.arange(12), random.integers(2, 30, 12)))
    labels = grouped(random.integers(0, 4, len(group)), [[f"query {number}" for number in group]], ())
    labels["label"][labels["group"] == 5] = 0
    return labels["label"] + random.normal(size=len(group)).astype(np.float32), labels


@pytest.mark.parametrize("seed", range(3))
def test_a_correlation_of_ranks_is_that_of_rows_as_often_as_they_were_drawn(seed: int) -> None:
    """Rows that are drawn together make resamples of other numbers of rows."""
    random = np.random.default_rng(seed)
    predicted, labels = random.integers(0, 9, 40).astype(float), random.normal(size=40)
    counts = random.integers(0, 4, (6, 40)) * random.integers(1, 3, (6, 1))
    columns = METRICS["spearman"].columns(predicted, labels)
    found = METRICS["spearman"].value(METRICS["spearman"].sums(counts.astype(float), [columns])[0])
    each = [stats.spearmanr(np.repeat(predicted, row), np.repeat(labels, row)).statistic for row in counts]
    np.testing.assert_allclose(found, each, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_rankings_equal_scikit_learn_by_query(seed: int) -> None:
    scores, labels = _groups(seed)
    gains, ranks, precisions = [], [], []
    for number in range(12):
        of_query = labels["group"] == number
        wanted, given = labels["label"][of_query], scores[of_query]
        if wanted.any():
            gains.append(sk.ndcg_score([wanted], [given], k=10))
            first = 1 + int(np.flatnonzero(wanted[np.argsort(-given)] > 0)[0])
            ranks.append(1 / first if first <= 10 else 0)
            precisions.append(sk.average_precision_score(wanted > 0, given))
    assert METRICS["ndcg_at_10"](scores, labels) == pytest.approx(np.mean(gains), rel=1e-6)
    assert METRICS["mrr_at_10"](scores, labels) == pytest.approx(np.mean(ranks), rel=1e-6)
    assert METRICS["map"](scores, labels) == pytest.approx(np.mean(precisions))


@pytest.mark.parametrize("decimals", [0, 1])
def test_average_precision_of_equal_scores_is_that_of_scikit_learn_in_any_order(decimals: int) -> None:
    scores, labels = _groups(5)
    scores = np.round(scores, decimals)
    groups = [labels["group"] == number for number in range(12)]
    expected = [
        sk.average_precision_score(labels["label"][own] > 0, scores[own])
        for own in groups
        if (labels["label"][own] > 0).any()
    ]
    assert METRICS["map"](scores, labels) == pytest.approx(np.mean(expected))
    mixed = np.random.default_rng(0).permutation(len(scores))
    assert METRICS["map"](scores[mixed], labels[mixed]) == pytest.approx(np.mean(expected))


@pytest.mark.parametrize("relevant", [0, 1, 2])
def test_equal_scores_rank_a_relevant_document_last(relevant: int) -> None:
    labels = np.zeros(3, _groups(0)[1].dtype)
    labels["label"][relevant] = 1
    assert METRICS["map"](np.zeros(3), labels) == pytest.approx(1 / 3)


def test_rankings_without_a_relevant_document_score_nothing() -> None:
    scores, labels = _groups(0)
    labels["label"] = 0
    assert [METRICS[name](scores, labels) for name in ("ndcg_at_10", "mrr_at_10", "map")] == [0.0] * 3


def test_recall_of_each_label_equals_scikit_learn() -> None:
    predicted, labels = _sample(2, 5)
    expected = sk.recall_score(labels, predicted, average=None)
    names, recalls = tuple("abcdef"), TASK_TYPES["classification"].recalls
    assert {name: percent for name, (percent, _) in recalls(predicted, labels, names).items()} == pytest.approx(
        dict(zip(names, 100 * expected, strict=False))
    )
    flags = np.eye(6, dtype=np.int64)
    assert TASK_TYPES["multi_label"].recalls(flags[predicted], flags[labels], names) == recalls(
        predicted, labels, names
    )
