"""Retained % against DistilBERT's published table and by hand; properties of the interval."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pytest

from distill.evaluation import chance
from distill.evaluation.results import Worst
from distill.evaluation.retained import (
    Interval,
    Predictions,
    Scores,
    above_chance,
    drawn,
    intervals,
    macro_score,
    retained,
    scores,
)

TASKS = ("cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2", "stsb", "wnli")
# GLUE dev sets as published with DistilBERT (arXiv:1910.01108, table 1; MNLI of BERT as in its README).
DISTILBERT = (51.3, 82.2, 87.5, 89.2, 88.5, 59.9, 91.3, 86.9, 56.3)
BERT = (56.3, 84.7, 88.6, 91.8, 89.6, 69.3, 92.7, 89.0, 53.5)


def _table(values: Sequence[float]) -> dict[str, dict[str, float]]:
    return {task: {"score": value} for task, value in zip(TASKS, values, strict=True)}


def test_the_published_table_of_distilbert() -> None:
    assert round(macro_score(_table(DISTILBERT)), 1) == 77.0
    assert round(macro_score(_table(BERT)), 1) == 79.5
    kept = retained(_table(DISTILBERT), _table(BERT), TASKS[:-1])
    assert round(kept.macro, 1) == 96.9
    assert round(kept.headline, 1) == 96.2
    assert round(kept.mean_of_ratios, 1) == 95.7
    assert kept.worst is not None
    assert kept.worst.task == "rte"
    assert round(kept.worst.percent, 1) == 86.4
    assert kept.left_out == []


def test_a_task_counts_once_however_many_metrics_and_splits_it_has() -> None:
    table = {
        "mrpc": {"f1": 80.0, "accuracy": 70.0},
        "mnli": {"accuracy_matched": 60.0, "accuracy_mismatched": 62.0},
        "wnli": {"accuracy": 10.0},
    }
    assert macro_score(table) == pytest.approx((75 + 61 + 10) / 3)
    assert macro_score(table, over=("mnli", "mrpc")) == pytest.approx(68.0)


def test_a_teacher_at_zero_is_left_out_and_named() -> None:
    student = {"cola": {"matthews": 9.0}, "sst2": {"accuracy": 45.0}, "rte": {"accuracy": 30.0}}
    teacher = {"cola": {"matthews": 0.0}, "sst2": {"accuracy": 90.0}, "rte": {"accuracy": 50.0}}
    kept = retained(student, teacher, teacher)
    assert kept.left_out == ["cola"]
    assert kept.macro == kept.headline == pytest.approx(100 * 75 / 140)
    assert kept.mean_of_ratios == pytest.approx(55.0)
    assert kept.worst == Worst(task="sst2", percent=50.0)


def test_a_task_counts_whatever_it_is_called() -> None:
    """A user's own task may have the name of one that GLUE's settings leave out of the headline."""
    student, teacher = ({"wnli": {"accuracy": a}, "rte": {"accuracy": b}} for a, b in ((50.0, 90.0), (100.0, 100.0)))
    assert retained(student, teacher, ["wnli", "rte"]).headline == pytest.approx(70.0)
    assert retained(student, teacher, ["wnli"]).headline == pytest.approx(50.0)
    assert retained(student, teacher, ["rte"]).headline == pytest.approx(90.0)
    assert retained(student, teacher, ["rte"]).macro == pytest.approx(70.0)


def test_a_ratio_without_tasks_is_none() -> None:
    kept = retained({"wnli": {"accuracy": 50.0}}, {"wnli": {"accuracy": 40.0}}, [])
    assert kept.macro == pytest.approx(125.0)
    assert kept.headline is None
    assert kept.mean_of_ratios is None
    kept = retained({"cola": {"matthews": 1.0}}, {"cola": {"matthews": -1.0}}, ["cola"])
    assert kept.macro is None
    assert kept.worst is None


def test_other_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="must be the same"):
        retained({"rte": {"accuracy": 1.0}}, {"sst2": {"accuracy": 1.0}}, ["rte"])


NAMES = {"cola": ["matthews"], "sst2": ["accuracy"], "stsb": ["pearson", "spearman"], "mnli": ["accuracy"]}


def _predictions(quality: float, seed: int, rows: int = 300) -> Predictions:
    """Labels depend on `rows` only, predictions also on `seed` and `quality`."""
    result = {}
    for place, (task, split) in enumerate(
        [
            ("sst2", "validation"),
            ("stsb", "validation"),
            ("mnli", "validation_matched"),
            ("mnli", "validation_mismatched"),
        ]
    ):
        truth, noise = np.random.default_rng(place), np.random.default_rng([seed, place])
        if task == "stsb":
            labels = truth.uniform(0, 5, rows)
            predicted = quality * labels + noise.normal(size=rows)
        else:
            labels = truth.integers(0, 3, rows)
            predicted = (quality * np.eye(3)[labels] + noise.normal(size=(rows, 3))).argmax(axis=1)
        result[task, split] = (predicted, labels)
    return result


def test_scores_name_the_splits_of_mnli() -> None:
    table = scores(_predictions(2.0, 0), NAMES)
    assert {task: list(values) for task, values in table.items()} == {
        "sst2": ["accuracy"],
        "stsb": ["pearson", "spearman"],
        "mnli": ["accuracy_matched", "accuracy_mismatched"],
    }


def bootstrap(
    student: Predictions, teacher: Predictions, floor: Scores | None = None, headline: Collection[str] = tuple(NAMES)
) -> list[Interval | None]:
    """Intervals of `headline` and of `above_chance`."""
    names = {task: NAMES.get(task, ["accuracy"]) for task, _ in teacher}
    of_resamples = drawn({"student": student, "teacher": teacher}, names, 500)
    return list(intervals(of_resamples["student"], of_resamples["teacher"], scores(teacher, names), headline, floor))


def test_a_model_against_itself_has_no_interval() -> None:
    """It was from 100 to 100, as if no other rows could differ."""
    teacher = _predictions(2.0, 0)
    floor = chance.of_tasks({key: labels for key, (_, labels) in teacher.items()}, NAMES)
    assert bootstrap(teacher, teacher, floor) == [None, None]


def test_the_interval_contains_the_point_estimate_and_is_the_same_every_time() -> None:
    student, teacher = _predictions(1.5, 1), _predictions(2.0, 0)
    ours, theirs = scores(student, NAMES), scores(teacher, NAMES)
    floor = chance.of_tasks({key: labels for key, (_, labels) in teacher.items()}, NAMES)
    points = [retained(ours, theirs, theirs).headline, above_chance(ours, theirs, floor, theirs)]
    both = bootstrap(student, teacher, floor)
    for point, interval in zip(points, both, strict=True):
        assert interval is not None
        assert interval[0] < point < interval[1]
    assert both == bootstrap(student, teacher, floor)


def test_above_chance_by_hand() -> None:
    teacher = {"cola": {"matthews": 50.0}, "mrpc": {"f1": 90.0, "accuracy": 86.0}, "wnli": {"accuracy": 60.0}}
    student = {"cola": {"matthews": 0.0}, "mrpc": {"f1": 81.0, "accuracy": 69.0}, "wnli": {"accuracy": 40.0}}
    floor = {"cola": {"matthews": 0.0}, "mrpc": {"f1": 81.0, "accuracy": 69.0}, "wnli": {"accuracy": 56.0}}
    headline = ["cola", "mrpc"]
    assert above_chance(student, teacher, floor, headline) == pytest.approx(0), "constant predictors have no skill"
    assert above_chance(teacher, teacher, floor, headline) == pytest.approx(100)
    halfway = {task: {m: (v + floor[task][m]) / 2 for m, v in of.items()} for task, of in teacher.items()}
    assert above_chance(halfway, teacher, floor, headline) == pytest.approx(50)
    assert above_chance(student, floor, floor, headline) is None
    assert above_chance({"wnli": student["wnli"]}, {"wnli": teacher["wnli"]}, {"wnli": floor["wnli"]}, headline) is None
    assert retained(student, teacher, headline).headline == pytest.approx(100 * 75 / 138)


def _width(rows: int) -> float:
    interval, _ = bootstrap(_predictions(1.5, 1, rows), _predictions(2.0, 0, rows))
    assert interval is not None
    return interval[1] - interval[0]


def test_the_interval_narrows_with_the_square_root_of_the_rows() -> None:
    assert _width(200) / _width(3200) == pytest.approx(4.0, rel=0.35)


def test_rows_are_drawn_in_pairs() -> None:
    """The interval is narrower for a student with the errors of its teacher than for one with other errors."""
    teacher = _predictions(2.0, 0)
    near = {key: (predicted + 0.01 * (key[0] == "stsb"), labels) for key, (predicted, labels) in teacher.items()}
    low, high = bootstrap(near, teacher)[0] or (0.0, 0.0)
    other_low, other_high = bootstrap(_predictions(2.0, 7), teacher)[0] or (0.0, 0.0)
    assert high - low < 0.01 < 1.0 < other_high - other_low


def test_no_interval_without_a_ratio() -> None:
    labels = np.array([0, 1, 0, 1])
    flat = {("cola", "validation"): (np.zeros(4, np.int64), labels)}
    assert bootstrap(flat, flat, {"cola": {"accuracy": 50.0}})[1] is None
    only = {("wnli", "validation"): (labels, labels)}
    assert bootstrap(only, only, {"wnli": {"accuracy": 50.0}}, []) == [None, None]


def test_other_rows_are_refused() -> None:
    teacher, student = _predictions(2.0, 0), dict(_predictions(2.0, 0))
    predicted, labels = student["sst2", "validation"]
    student["sst2", "validation"] = (predicted, labels[::-1])
    with pytest.raises(ValueError, match="same rows"):
        bootstrap(student, teacher)
