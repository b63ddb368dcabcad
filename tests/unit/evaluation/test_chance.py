"""Scores without skill: against scikit-learn's constant classifiers, and against all orders of small groups."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from distill.data.task_types.retrieval import JUDGED, grades
from distill.data.task_types.spans import TAGGED
from distill.data.task_types.task_type import GROUPED
from distill.evaluation.chance import chance, guessed, near_chance, near_constant, of_tasks
from distill.evaluation.metrics import METRICS


@pytest.mark.parametrize("seed", range(3))
def test_classes_are_those_of_the_best_constant_classifier(seed: int) -> None:
    labels = np.random.default_rng(seed).choice(4, 90, p=[0.1, 0.2, 0.65, 0.05])
    empty = np.zeros((len(labels), 1))
    guesses = [
        DummyClassifier(strategy="constant", constant=value).fit(empty, labels).predict(empty) for value in range(4)
    ]
    every = [
        {
            "accuracy": accuracy_score(labels, guess),
            "f1_macro": f1_score(labels, guess, average="macro", zero_division=0),
            "matthews": matthews_corrcoef(labels, guess),
        }
        for guess in guesses
    ]
    expected = max(every, key=lambda scores: sum(scores.values()))
    found = chance(list(expected), labels)
    assert found == pytest.approx({name: 100 * value for name, value in expected.items()})
    assert found["accuracy"] == pytest.approx(100 * (labels == 2).mean())


@pytest.mark.parametrize(("strategy", "counts"), [("stratified", (700, 200, 100)), ("uniform", (550, 450))])
def test_mean_f1_is_that_of_guesses_where_they_are_better(strategy: str, counts: tuple[int, ...]) -> None:
    """Of two classes a guess has a mean F1 of 1/2, and one answer for all rows 1/3 or little more."""
    labels = np.repeat(np.arange(len(counts)), counts)
    empty = np.zeros((len(labels), 1))
    guesses = [
        DummyClassifier(strategy=strategy, random_state=seed).fit(empty, labels).predict(empty) for seed in range(100)
    ]
    every = [f1_score(labels, guess, average="macro") for guess in guesses]
    shares = np.array(counts) / len(labels)
    guess = shares if strategy == "stratified" else np.full(len(counts), 1 / len(counts))
    by_hand = (2 * shares * guess / (shares + guess)).mean()
    assert np.mean(every) == pytest.approx(by_hand, abs=0.01)
    found = chance(["f1_macro"], labels)["f1_macro"]
    assert found == pytest.approx(100 * max(by_hand, 1 / len(counts)))  # by the shares of the classes it is 1 / classes
    assert guessed({("own", "test"): labels}, {"own": ["f1_macro"]}) == ["own"]


def test_one_predictor_has_the_best_mean_of_accuracy_and_mean_f1() -> None:
    names, even, rare = ["accuracy", "f1_macro"], np.arange(40) % 4, np.array([0] * 90 + [1] * 10)
    assert chance(names, even) == pytest.approx({"accuracy": 25, "f1_macro": 25})  # one class for all rows: 25 and 10
    assert chance(names, rare) == pytest.approx({"accuracy": 90, "f1_macro": 100 * 9 / 19})  # guesses: 82 and 50
    labels = {("even", "test"): even, ("rare", "test"): rare, ("right", "test"): even}
    assert guessed(labels, {"even": names, "rare": names, "right": ["accuracy"]}) == ["even"]


def test_f1_is_that_of_the_positive_class_though_it_is_rare() -> None:
    labels = np.array([1] * 3 + [0] * 7)
    assert chance(["f1"], labels) == pytest.approx({"f1": 100 * 6 / 13})
    assert chance(["accuracy"], labels) == pytest.approx({"accuracy": 70})


def test_all_metrics_are_of_one_predictor() -> None:
    """Of 63 zeros and 37 ones, no predictor has both the F1 of all ones and the accuracy of all zeros."""
    labels = np.array([0] * 63 + [1] * 37)
    assert chance(["f1", "accuracy"], labels) == pytest.approx({"f1": 100 * 74 / 137, "accuracy": 37})
    rare = np.array([0] * 90 + [1] * 10)
    assert chance(["f1", "accuracy"], rare) == pytest.approx({"f1": 0, "accuracy": 90})


def test_several_labels_are_none_all_or_one() -> None:
    labels = np.array([[1, 0, 0]] * 6 + [[1, 1, 0]] * 2 + [[0, 0, 0]] * 2)
    guesses = [np.tile(row, (len(labels), 1)) for row in ([0, 0, 0], [1, 1, 1], *np.eye(3, dtype=np.int64))]
    every = [
        {
            "f1_micro": f1_score(labels, guess, average="micro", zero_division=0),
            "f1_macro": f1_score(labels, guess, average="macro", zero_division=0),
            "accuracy": accuracy_score(labels, guess),
        }
        for guess in guesses
    ]
    best = max(every, key=lambda scores: sum(scores.values()))
    assert chance(list(best), labels) == pytest.approx({name: 100 * value for name, value in best.items()})
    assert best["accuracy"] == 0.6  # of the first label alone
    assert chance(["f1_macro"], labels)["f1_macro"] == pytest.approx(100 * every[1]["f1_macro"])  # of all labels


def test_numbers_have_no_correlation_with_a_constant() -> None:
    assert chance(["pearson", "spearman"], np.arange(5.0)) == {"pearson": 0.0, "spearman": 0.0}


def test_words_are_outside_of_spans_or_of_one_tag() -> None:
    labels = np.zeros(10, TAGGED)
    labels["label"], labels["group"] = [-1] * 7 + [0, 1, -1], [0] * 5 + [1] * 5
    found = chance(["span_f1", "accuracy"], labels)
    assert found == pytest.approx({"span_f1": 0.0, "accuracy": 80.0})


def test_answers_are_none_or_the_whole_context() -> None:
    context = "the red house"
    rows = [(context, ()), (context, ()), (context, ((4, 7),)), (context, ((4, 13),))]
    labels = np.empty(len(rows), object)
    labels[:] = rows
    found = chance(["exact_match", "answer_f1"], labels)
    assert found["exact_match"] == pytest.approx(50)  # no answer; without its article, the context is right once
    assert found["answer_f1"] == pytest.approx(max(50, 100 * (0 + 0 + 2 / 3 + 1) / 4))


GAINS = [3.0, 0.0, 1.0, 0.0, 0.0, 1.0]


def test_rankings_are_the_mean_over_all_orders() -> None:
    labels = np.zeros(len(GAINS) + 2, GROUPED)
    labels["label"], labels["group"] = [*GAINS, 0, 0], [0] * len(GAINS) + [1, 1]  # the second query has no relevant one
    found = chance(["ndcg_at_10", "mrr_at_10", "map"], labels)
    for name, value in found.items():
        every = [METRICS[name](np.array([*order, 0, 0]), labels) for order in permutations(range(len(GAINS)))]
        assert value == pytest.approx(100 * np.mean(every)), name


@pytest.mark.slow
def test_long_rankings_are_the_mean_over_random_orders() -> None:
    random = np.random.default_rng(0)
    labels = np.zeros(25, GROUPED)
    labels["label"][:3] = (2, 1, 1)
    found = chance(["ndcg_at_10", "mrr_at_10", "map"], labels)
    for name, value in found.items():
        every = [METRICS[name](random.permutation(25), labels) for _ in range(4000)]
        assert value == pytest.approx(100 * np.mean(every), abs=1.5), name


def test_retrieval_is_the_mean_over_random_vectors() -> None:
    random, rows = np.random.default_rng(0), 30
    labels = np.zeros(rows, JUDGED)
    labels["group"], labels["document"] = np.arange(rows) // 2, np.arange(rows)
    labels["label"] = np.where(np.arange(rows) % 6 == 5, 0, 1)
    labels["document"][4] = 0  # a document that two queries share
    labels["document"] = np.unique(labels["document"], return_inverse=True)[1]
    names = ["ndcg_at_10", "mrr_at_10", "recall_at_10"]
    found = chance(names, labels)
    every = []
    for _ in range(400):
        outputs = random.normal(size=(rows, 40))
        outputs[4, 20:] = outputs[0, 20:]
        graded = grades(outputs, labels)
        every.append([METRICS[name](graded, labels) for name in names])
    assert list(found.values()) == pytest.approx(100 * np.mean(every, axis=0), abs=2.0)


def test_splits_have_keys_of_their_own() -> None:
    labels = {("mnli", "validation_matched"): np.array([0, 0, 1]), ("mnli", "validation_mismatched"): np.array([1, 0])}
    found = of_tasks(labels, {"mnli": ["accuracy"]})
    assert found == {"mnli": {"accuracy_matched": pytest.approx(200 / 3), "accuracy_mismatched": 50.0}}


def test_a_teacher_is_near_chance_where_its_interval_includes_it() -> None:
    values = np.linspace(40, 60, 1001)
    teacher = {"a": {"accuracy": values}, "b": {"accuracy": values + 5, "f1": values + 5}, "c": {"accuracy": values}}
    floor = {"a": {"accuracy": 50.0}, "b": {"accuracy": 40.0, "f1": 48.0}, "c": {"accuracy": 70.0}}
    assert near_chance(teacher, floor) == ["a", "c"]  # b: from 45.5, above the mean of 40 and 48


def test_near_constant_is_99_percent_of_one_prediction() -> None:
    ones, most = np.ones(200, np.int64), np.array([0] * 2 + [1] * 198)
    fewer, flags = np.array([0] * 3 + [1] * 197), np.tile([0, 1], (200, 1))
    predictions = {
        ("a", "validation"): (ones, ones),
        ("b", "validation"): (most, ones),
        ("c", "validation"): (fewer, ones),
        ("d", "validation"): (flags, flags),
        ("e", "validation_matched"): (ones, ones),
        ("e", "validation_mismatched"): (fewer, ones),
        ("f", "validation"): (ones, ones),
    }
    assert near_constant(predictions, without=["f"]) == ["a", "b", "d"]
