"""Detection of labels against scikit-learn; the threshold that development rows give, where it is served too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sk

from distill.data.task_types import TASK_TYPES
from distill.data.task_types.detecting import LARGEST, reached
from distill.evaluation.detection import (
    Rows,
    average_precision,
    curve,
    described,
    every,
    of_labels,
    roc_auc,
    threshold,
)

CLASSIFICATION, MULTI_LABEL = TASK_TYPES["classification"], TASK_TYPES["multi_label"]


def rows(seed: int, count: int = 2000, ties: bool = False, share: float = 0.05) -> Rows:
    """Log-odds and truth of rows of which few have the label."""
    random = np.random.default_rng(seed)
    truth = random.random(count) < share
    odds = random.normal(size=count) + 2.5 * truth
    return np.round(odds, 1) if ties else odds, truth


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_areas_equal_scikit_learn(seed: int, ties: bool) -> None:
    odds, truth = rows(seed, 300, ties)
    assert roc_auc(curve(odds, truth)) == pytest.approx(sk.roc_auc_score(truth, odds))
    assert average_precision(curve(odds, truth)) == pytest.approx(sk.average_precision_score(truth, odds))


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("count", [60, 2000, 3111])
def test_the_threshold_has_the_most_recall_of_all_with_so_few_false_positives(count: int, ties: bool) -> None:
    odds, truth = rows(7, count, ties, share=0.1)
    rates, recalls, _ = sk.roc_curve(truth, odds, drop_intermediate=False)
    flags = reached(odds, threshold(odds, truth) or 0.0)
    assert flags[~truth].mean() <= 0.01
    assert flags[truth].mean() == pytest.approx(recalls[rates <= 0.01].max())
    assert flags[~truth].mean() == pytest.approx(rates[rates <= 0.01].max())


def test_one_percent_is_counted_in_whole_rows() -> None:
    truth = np.arange(2910) < 10
    odds = -np.arange(2910.0) / 2910
    flags = reached(odds, threshold(odds, truth) or 0.0)
    assert flags.sum() == 10 + 29  # 0.01 x 2900 is below 29 in floating point


def test_a_threshold_lies_between_rows_and_survives_what_is_rounded() -> None:
    odds, truth = np.array([-3.0, -1.0, 1.0, 2.0]), np.array([False, False, True, True])
    assert threshold(odds, truth) == pytest.approx(0.5)
    assert reached(odds + 1e-3, 0.5).tolist() == reached(odds - 1e-3, 0.5).tolist() == [False, False, True, True]


@pytest.mark.parametrize("high", [3.0, LARGEST - 1e-2])
def test_no_row_reaches_the_threshold_where_the_highest_has_no_label(high: float) -> None:
    odds, truth = np.array([high, 1.0, -2.0]), np.array([False, True, False])
    chosen = threshold(odds, truth)
    assert chosen is not None
    assert 0 < chosen < 1
    assert not reached(odds, chosen).any()


@pytest.mark.parametrize("high", [LARGEST, 40.0, 800.0])
def test_there_is_no_threshold_beyond_the_log_odds_that_are_told_apart(high: float) -> None:
    assert threshold(np.array([high, 1.0, -2.0]), np.array([False, True, False])) is None
    assert threshold(np.array([high, 1.0, -2.0]), np.array([True, False, False])) is not None


def test_a_threshold_needs_only_rows_without_the_label() -> None:
    odds = np.arange(200.0) / 10
    assert reached(odds, threshold(odds, np.zeros(200, np.bool_)) or 0.0).sum() == 2
    assert threshold(odds, np.ones(200, np.bool_)) is None


@pytest.mark.parametrize("same", [True, False])
def test_nothing_is_defined_without_rows_of_both_kinds(same: bool) -> None:
    odds, truth = np.arange(4.0), np.full(4, same)
    found = described((odds, truth), rows(0))
    assert (found.roc_auc, found.average_precision) == (None, None)
    assert (found.recall is None, found.false_positives is None) == (not same, same)


def test_the_threshold_is_of_development_rows_and_the_numbers_of_reported_ones() -> None:
    reported, development = rows(1), rows(2)
    found = described(reported, development)
    chosen = threshold(*development)
    odds, truth = reported
    assert found.threshold == chosen != threshold(*reported)
    flags = reached(odds, chosen or 0.0)
    assert found.recall == pytest.approx(100 * sk.recall_score(truth, flags))
    assert found.false_positives == pytest.approx(100 * sk.recall_score(~truth, flags))
    assert (found.positives, found.negatives) == (truth.sum(), (~truth).sum())
    assert found.roc_auc == pytest.approx(100 * sk.roc_auc_score(truth, odds))
    assert found.chosen_on == (~development[1]).sum()
    without = described(reported, None)
    assert (without.threshold, without.chosen_on) == (None, 0)


def test_each_of_two_classes_and_each_label_is_detected() -> None:
    random = np.random.default_rng(0)
    outputs, truth = random.normal(size=(50, 2)).astype(np.float32), random.integers(0, 2, 50)
    found = of_labels(CLASSIFICATION, ("fine", "bad"), outputs, truth)
    shares = np.exp(outputs[:, 1]) / np.exp(outputs).sum(axis=1)
    assert roc_auc(curve(*found["bad"])) == pytest.approx(sk.roc_auc_score(truth, shares))
    assert roc_auc(curve(*found["fine"])) == pytest.approx(roc_auc(curve(*found["bad"])))
    assert average_precision(curve(*found["fine"])) == pytest.approx(sk.average_precision_score(truth == 0, 1 - shares))
    labels, three = random.integers(0, 2, (50, 3)), random.normal(size=(50, 3))
    several = of_labels(MULTI_LABEL, ("a", "b", "c"), three, labels)
    for column, name in enumerate("abc"):
        assert roc_auc(curve(*several[name])) == pytest.approx(sk.roc_auc_score(labels[:, column], three[:, column]))
    assert of_labels(CLASSIFICATION, ("a", "b", "c"), three, random.integers(0, 3, 50)) == {}
    assert of_labels(TASK_TYPES["regression"], (), three[:, :1], random.random(50)) == {}


def test_splits_of_a_task_are_one_set_of_rows() -> None:
    first, second, other = rows(1), rows(2), rows(3)
    found = every({"own": [{"bad": first}, {"bad": second}], "none": [{}]}, {"own": [{"bad": other}]})
    joined = [np.concatenate(parts) for parts in zip(first, second, strict=True)]
    assert found == {"own": {"bad": described((joined[0], joined[1]), other)}}


def test_predictions_have_the_detected_labels_alone() -> None:
    answers: list[dict[str, Any]] = CLASSIFICATION.answer(np.array([[2.0, 0.0]]), ("fine", "bad"), 0.5, [])
    assert CLASSIFICATION.detecting is not None
    assert MULTI_LABEL.detecting is not None
    found = CLASSIFICATION.detecting.decided(answers[0], {"bad": True})
    assert (found["label"], found["score"]) == ("bad", answers[0]["scores"]["bad"])
    assert CLASSIFICATION.detecting.decided(answers[0], {"bad": False}) == answers[0]
    assert CLASSIFICATION.detecting.decided(answers[0], {"fine": False})["label"] == "bad"
    several = MULTI_LABEL.answer(np.array([[2.0, -1.0, 3.0]]), ("a", "b", "c"), 0.5, [])[0]
    assert MULTI_LABEL.detecting.decided(several, {"a": False, "b": True})["labels"] == ["b", "c"]
