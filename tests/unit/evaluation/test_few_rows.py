"""What few differing rows can show: the exact bounds of scipy, and how often they are wrong."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from scipy.stats import beta, binom, binomtest

from distill.data.task import Task
from distill.data.task_types import TASK_TYPES
from distill.data.task_types.spans import TAGGED
from distill.data.task_types.task_type import GROUPED
from distill.data.tasks import TaskData
from distill.evaluation.few_rows import FEWEST, differing, margin
from distill.evaluation.measured import Measured, Outputs
from distill.evaluation.model_results import _retained
from distill.inference.timing import Timed
from distill.inference.variants import REFERENCE, Variant

STEP: Any = None
STUDENT = "student torch fp32"


def at_least(labels: np.ndarray, student: np.ndarray, *metrics: str) -> float | None:
    """What a student with these predictions keeps at least, whose teacher is right on all rows."""
    rows = Dataset.from_dict({"text": [f"text {number}" for number in range(len(labels))]})
    task = Task("own", TASK_TYPES["classification"], ("text",), tuple("abcdefgh"[: labels.max() + 1]), metrics)
    outputs: dict[str, Outputs] = {
        name: {("own", "test"): (np.eye(labels.max() + 1)[predicted], labels)}
        for name, predicted in ((REFERENCE, labels), (STUDENT, student))
    }
    variants = [Variant("teacher", "torch", "fp32", STEP), Variant("student", "torch", "fp32", STEP)]
    timed = Timed({}, {}, 5, {}, "none")
    data = TaskData(task, rows, {}, {"test": rows})
    return _retained(STUDENT, Measured({"own": data}, variants, outputs, timed, {}, False, "batch")).at_least


@pytest.mark.parametrize(("rows", "lost"), [(24, 0), (99, 0), (162, 0), (162, 1), (162, 4), (400, 9), (60, 30)])
def test_a_student_that_gains_no_row_has_the_exact_bound(rows: int, lost: int) -> None:
    """By a bootstrap, one that loses one of 162 rows keeps 98.1%."""
    labels = np.arange(rows) % 2
    found = at_least(labels, np.where(np.arange(rows) < lost, 1 - labels, labels), "accuracy")
    most = binomtest(lost, rows).proportion_ci(0.9, method="exact").high
    assert found == pytest.approx(100 * (1 - most))


@pytest.mark.parametrize("share", [0.005, 0.019, 0.03, 0.08])
def test_the_bound_is_too_high_in_at_most_5_percent_of_samples(share: float) -> None:
    rows, most = np.arange(162), 60  # more are not lost in practice
    bounds = [100 * (1 - lost / 162) - margin(rows >= 0, rows >= lost, rows) for lost in range(most)]
    wrong = np.array(bounds) > 100 * (1 - share)
    assert 0 < binom.pmf(np.arange(most), 162, share)[wrong].sum() <= 0.05 or not wrong.any()


def test_with_gained_rows_it_is_too_high_in_at_most_5_percent_of_samples() -> None:
    random, rows, wrong = np.random.default_rng(0), np.arange(400), 0
    before = rows < 360
    true = 100 * (0.1 * 40 - 0.02 * 360) / 400
    for _ in range(1000):
        after = np.where(before, random.random(400) >= 0.02, random.random(400) < 0.1)
        observed = 100 * (after.mean() - before.mean())
        wrong += observed - margin(before, after, rows) > true
    assert 10 <= wrong <= 60  # by the exact probabilities of the numbers of rows, about 36


def test_with_many_differing_rows_it_is_near_the_normal_one() -> None:
    rows = np.arange(1000)
    before = rows < 800
    after = (rows >= 60) & (rows < 850)
    deviation = np.sqrt(60 * 740 / 800 + 50 * 150 / 200) / 10
    assert margin(before, after, rows) == pytest.approx(1.645 * deviation, rel=0.2)


def test_parts_that_share_a_text_count_once() -> None:
    rows = np.arange(100)
    assert margin(rows >= 0, rows >= 0, rows // 2) == pytest.approx(100 - 100 * beta.ppf(0.05, 50, 1))


def test_mean_f1_is_as_uncertain_as_its_rarest_class() -> None:
    labels = (np.arange(600) < 12).astype(np.int64)
    share = fmean((12 / 600, 1 / 2))
    expected = 100 - share * 100 * (1 - 0.05 ** (1 / 12))
    assert at_least(labels, labels, "accuracy", "f1_macro") == pytest.approx(expected)
    assert at_least(labels, labels, "accuracy") == pytest.approx(100 * 0.05 ** (1 / 600))


def test_for_other_scores_nothing_is_said_of_few_differing_rows() -> None:
    labels = np.arange(200) % 2
    students = [np.where(np.arange(200) < lost, 1 - labels, labels) for lost in (0, FEWEST - 1, FEWEST)]
    assert [at_least(labels, each, "matthews") is None for each in students] == [True, True, False]


def test_differing_units_are_rows_texts_and_queries() -> None:
    words = np.zeros(40, TAGGED)
    words["group"] = np.arange(40) // 10
    tags = words["label"].copy()
    tags[[12, 35, 36]] = -1
    assert differing(["span_f1"], words["label"], tags, words) == 2
    documents = np.zeros(12, GROUPED)
    documents["label"], documents["group"] = np.arange(12) % 3 == 0, np.arange(12) // 3
    scores = np.tile([3.0, 2.0, 1.0], 4)
    other = scores + 0.1  # in the same order
    assert differing(["ndcg_at_10", "mrr_at_10"], scores, other, documents) == 0
    other[3:6] = [1, 2, 3]
    assert differing(["ndcg_at_10", "mrr_at_10"], scores, other, documents) == 1
    labels = np.array([0, 1, 1, 0])
    beyond = np.array([0, 2, 2, 0])  # a class that is in no label
    assert differing(["f1_macro"], labels, beyond, labels) == 2
    assert differing(["f1_macro"], labels, beyond, labels, np.array([0, 1, 1, 2])) == 1
