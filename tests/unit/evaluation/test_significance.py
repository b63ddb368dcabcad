"""Tests of two models against formulas written out, and under the null hypothesis."""

from __future__ import annotations

from dataclasses import replace
from math import comb
from typing import Any

import numpy as np
import pytest
from scipy.stats import false_discovery_control

from distill.evaluation import resamples, retained
from distill.evaluation.few_rows import counts_right_rows
from distill.evaluation.results import Identity
from distill.evaluation.significance import FEW, Scored, correct, detectable, every_test, holm, mcnemar, right


def flags(*values: int) -> np.ndarray:
    return np.array(values, np.bool_)


@pytest.mark.parametrize(("only_a", "only_b"), [(0, 0), (1, 0), (2, 7), (9, 3), (5, 5), (0, 12)])
def test_mcnemar_is_the_sum_of_binomial_probabilities(only_a: int, only_b: int) -> None:
    both, neither = 4, 3
    a = flags(*[1] * both, *[0] * neither, *[1] * only_a, *[0] * only_b)
    b = flags(*[1] * both, *[0] * neither, *[0] * only_a, *[1] * only_b)
    total, fewer = only_a + only_b, min(only_a, only_b)
    tail = sum(comb(total, k) for k in range(fewer + 1)) / 2**total
    assert mcnemar(a, b) == {"only_a": only_a, "only_b": only_b, "p": pytest.approx(min(1.0, 2 * tail))}


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_is_between_no_correction_and_bonferroni() -> None:
    """And rejects no more than the control of the false discovery rate, of scipy."""
    random = np.random.default_rng(0)
    for _ in range(50):
        p = random.random(20) ** 3
        corrected = np.array(holm(list(p)))
        assert (p <= corrected).all()
        assert (corrected <= np.minimum(20 * p, 1)).all()
        assert (false_discovery_control(p) <= corrected + 1e-12).all()


Predictions = dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]
COUNTED = ["sst2", "mrpc"]
"""The tasks of the headline."""
NAMES = {"sst2": ["accuracy"], "mrpc": ["f1", "accuracy"], "wnli": ["accuracy"]}


def predictions(quality: float, seed: int, tasks: tuple[str, ...] = ("sst2", "mrpc", "wnli")) -> Predictions:
    """Labels depend on the task alone."""
    made: Predictions = {}
    for task in tasks:
        place = [*NAMES].index(task)
        truth, noise = np.random.default_rng(place), np.random.default_rng([seed, place])
        labels = truth.integers(0, 2, 400)
        made[task, "validation"] = (np.where(noise.random(400) < quality, labels, 1 - labels), labels)
    return made


def scored(given: dict[str, tuple[str, str, Predictions]]) -> dict[str, Scored]:
    """Models by name; given: name -> role, scheme, predictions."""
    drawn = retained.drawn({name: each for name, (*_, each) in given.items()}, NAMES)
    made = {}
    for name, (role, scheme, each) in given.items():
        correct = {}
        for task in {task for task, _ in each}:
            found = right(
                NAMES[task], lambda a, b: a == b, {key: value for key, value in each.items() if key[0] == task}
            )
            correct |= {} if found is None else {task: found}
        identity = Identity(name=name, scheme=scheme, backend="torch")
        made[name] = Scored(identity, role, "", retained.scores(each, NAMES), drawn[name], correct)
    return made


def pairs(found: list[dict[str, Any]], scope: str | None) -> dict[tuple[str, str], dict[str, Any]]:
    return {(test.a.name, test.b.name): test for test in found if test.scope == scope}


def test_which_models_are_tested() -> None:
    models = scored(
        {
            "teacher": ("teacher", "fp32", predictions(0.9, 0)),
            "student": ("student", "fp32", predictions(0.89, 1)),
            "int8": ("student", "int8", predictions(0.7, 2)),
            "baseline": ("baseline", "fp32", predictions(0.6, 3)),
            "control": ("self-trained", "fp32", predictions(0.7, 4)),
        }
    )
    found = every_test([*models.values()], models["teacher"], COUNTED)
    expected = {("student", "teacher"), ("student", "baseline"), ("student", "control"), ("int8", "teacher")}
    # The best student is not known from other rows than these.
    for task in (None, *NAMES):
        assert pairs(found, task).keys() == expected
    assert pairs(found, "sst2")["int8", "teacher"].test == "mcnemar"
    assert pairs(found, "mrpc")["int8", "teacher"].test == "bootstrap"
    assert pairs(found, None)["int8", "teacher"].test == "bootstrap"
    headline = pairs(found, None)
    assert headline["int8", "teacher"].distinguishable
    assert headline["student", "baseline"].distinguishable
    assert not headline["student", "teacher"].distinguishable
    scores = {name: retained.macro_score(model.scores, COUNTED) for name, model in models.items()}
    for (a, b), test in headline.items():
        assert test.difference == pytest.approx(scores[a] - scores[b])
        assert test.ci95[0] <= test.difference <= test.ci95[1]
        assert test.p <= test.p_corrected
        assert test.distinguishable == (test.p_corrected < 0.05)


def test_equal_predictions_have_a_test_without_an_interval() -> None:
    models = scored(
        {
            "teacher": ("teacher", "fp32", predictions(0.9, 0)),
            "student": ("student", "fp32", predictions(0.9, 0)),
        }
    )
    found = every_test([*models.values()], models["teacher"], COUNTED)
    assert {(test.difference, test.ci95, test.p, test.distinguishable) for test in found} == {(0.0, None, 1.0, False)}


@pytest.mark.parametrize(("lost", "exact"), [(4, True), (FEW - 1, True), (FEW, False)])
def test_of_few_differing_rows_the_larger_p_counts(lost: int, exact: bool) -> None:
    """A bootstrap of the default metrics called a model different that is wrong on 4 rows more."""
    names, labels = {"own": ["accuracy", "f1_macro"]}, np.arange(400) % 2
    given: dict[str, Predictions] = {
        "teacher": {("own", "test"): (labels, labels)},
        "student": {("own", "test"): (np.where(np.arange(400) < lost, 1 - labels, labels), labels)},
    }
    drawn = retained.drawn(given, names)
    models = []
    for role, each in given.items():
        rows = correct(lambda a, b: a == b, each)
        assert rows is not None
        identity = Identity(name=role, scheme="fp32", backend="torch")
        scores = retained.scores(each, names)
        models.append(Scored(identity, role, "", scores, drawn[role], rows={"own": rows}))
    found = every_test(models, models[0], ["own"])
    by_rows = 2 * 0.5**lost
    assert {test.test for test in found} == {"mcnemar" if exact else "bootstrap"}
    assert all((test.p == pytest.approx(by_rows)) == exact for test in found)


def test_the_best_student_is_chosen_on_other_rows() -> None:
    models = scored(
        {
            "teacher": ("teacher", "fp32", predictions(0.9, 0)),
            **{f"student {n}": ("student", "s1", predictions(quality, n)) for n, quality in ((1, 0.9), (2, 0.7))},
        }
    )
    for scores, best in (((95.0, 99.0), {"student 2"}), ((99.0, None), set[str]())):
        others = [replace(models[f"student {n}"], development=score) for n, score in zip((1, 2), scores, strict=True)]
        found = every_test([models["teacher"], *others], models["teacher"], COUNTED)
        assert {test.b.name for test in found if test.b.name != "teacher"} == best


def test_values_of_p_are_corrected_within_the_question_that_they_answer() -> None:
    models = scored(
        {
            "teacher": ("teacher", "fp32", predictions(0.9, 0)),
            "baseline": ("baseline", "s1", predictions(0.8, 9)),
            **{f"student {n}": ("student", "s1", predictions(0.86, n)) for n in range(1, 6)},
            "student 6": ("student", "s2", predictions(0.86, 6)),
        }
    )
    judged = [replace(model, development=90.0) if model.role == "student" else model for model in models.values()]
    found = every_test(judged, models["teacher"], COUNTED)
    of_tasks: list[tuple[str | None, str]] = [(name, "teacher") for name in NAMES]
    questions = [*((None, role) for role in ("teacher", "baseline", "student")), *of_tasks]
    for scope, role in questions:
        every = [test for test in found if test.scope == scope and test.b.name.startswith(role)]
        asked = [test for test in every if test.a.scheme == "s1"]
        assert len(every) == {"teacher": 6, "baseline": 5, "student": 5}[role]
        assert [test.p_corrected for test in asked] == pytest.approx(holm([test.p for test in asked]))
        assert all(test.p_corrected == test.p for test in every if test.a.scheme == "s2")  # a form pays for no other


def test_a_report_of_one_task_has_the_exact_test_of_its_score() -> None:
    one = ("sst2",)
    models = scored(
        {
            "teacher": ("teacher", "fp32", predictions(0.9, 0, one)),
            "student": ("student", "fp32", predictions(0.84, 1, one)),
        }
    )
    found = every_test([*models.values()], models["teacher"], COUNTED)
    (headline,), (task,) = pairs(found, None).values(), pairs(found, "sst2").values()
    assert headline.test == task.test == "mcnemar"
    assert headline.p == task.p == mcnemar(models["student"].right["sst2"], models["teacher"].right["sst2"])["p"]


def test_without_a_task_of_the_headline_there_is_no_such_test() -> None:
    models = scored(
        {
            "teacher": ("teacher", "fp32", predictions(0.9, 0, ("wnli",))),
            "student": ("student", "fp32", predictions(0.84, 1, ("wnli",))),
        }
    )
    assert {test.scope for test in every_test([*models.values()], models["teacher"], COUNTED)} == {"wnli"}


def test_equal_models_differ_in_five_percent_of_the_tests() -> None:
    """The p of a paired bootstrap, of models that are as good as each other."""
    below = 0
    for seed in range(200):
        labels = np.random.default_rng([7, seed]).integers(0, 2, 300)
        noise = np.random.default_rng([8, seed])
        each = {name: np.where(noise.random(300) < 0.8, labels, 1 - labels) for name in "ab"}
        values = resamples.drawn(["accuracy"], each, labels, seed, 1000)
        below += resamples.p_value(values["a"]["accuracy"] - values["b"]["accuracy"]) < 0.05
    assert 2 <= below <= 20  # 10 expected; 99.9% of binomial draws


def test_the_detectable_difference_is_found_four_times_in_five() -> None:
    """Models that differ by it: how often McNemar's test finds it."""
    rows, agree = 800, 0.85
    models = scored(
        {
            "teacher": ("teacher", "fp32", predictions(0.9, 0, ("sst2",))),
            "student": ("student", "fp32", predictions(0.87, 1, ("sst2",))),
        }
    )
    least = detectable([*models.values()], models["teacher"])["sst2"]
    assert least is not None
    differs = (models["teacher"].right["sst2"] != models["student"].right["sst2"]).mean()
    by_formula = 100 * 2.8016 * np.sqrt(differs / 400)
    assert least == pytest.approx(by_formula, rel=0.1)  # exact for no difference
    assert detectable([models["teacher"]], models["teacher"]) == {"sst2": None}
    random, found = np.random.default_rng(0), 0
    shift = 2.8016 * np.sqrt((1 - agree) / rows)  # of a pair of models that differ on 15% of the rows
    for _ in range(400):
        draw = random.random(rows)
        only_a, only_b = draw < (1 - agree + shift) / 2, draw > 1 - (1 - agree - shift) / 2
        found += mcnemar(~only_b, ~only_a)["p"] < 0.05
    assert 0.7 < found / 400 < 0.87


def test_right_rows_are_those_of_a_score_that_counts_them() -> None:
    values = (np.array([1, 0, 1]), np.array([1, 1, 1]))
    both = {("mnli", "validation_matched"): values, ("mnli", "validation_mismatched"): values}

    def same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        equal: np.ndarray = a == b
        return equal

    found = right(["accuracy"], same, both)
    assert found is not None
    assert found.tolist() == [True, False, True] * 2
    assert right(["f1", "accuracy"], same, both) is None
    assert right(["accuracy"], None, both) is None
    graded = {("squad", "validation"): (np.array([[1.0, 1.0], [0.0, 0.5]]), np.empty(2, object))}
    assert (right(["exact_match"], same, graded) == flags(1, 0)).all()


def test_rows_decide_where_scores_are_counts_of_them() -> None:
    """Of several labels, and of answers, few rows may be right as a whole while models differ on many."""
    classes, sets, answers = np.array([1, 0]), np.array([[1, 0], [0, 1]]), np.empty(2, object)
    assert counts_right_rows(("accuracy", "f1_macro"), classes)
    assert not counts_right_rows(("f1_micro", "f1_macro"), sets)
    assert not counts_right_rows(("exact_match", "answer_f1"), answers)
