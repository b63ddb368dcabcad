"""Two models on the same rows, against formulas written out and against scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import f1_score, recall_score

from distill.cli.compare import page
from distill.data.task_types import TASK_TYPES
from distill.evaluation.paired import agreement, classes, compared, scores

KIND = TASK_TYPES["classification"]


def test_interval_is_that_of_the_mean_paired_difference() -> None:
    """For accuracy, the interval of a difference is known: its standard error is that of the mean of -1, 0 and 1."""
    random = np.random.default_rng(1)
    truth = random.integers(0, 2, 2000)
    a, b = (np.where(random.random(2000) < right, truth, 1 - truth) for right in (0.9, 0.8))
    paired = (b == truth).astype(float) - (a == truth)
    error = 1.96 * paired.std() / np.sqrt(len(paired))
    found = scores(["accuracy"], a, b, truth)["accuracy"]
    expected = (100 * (paired.mean() - error), 100 * (paired.mean() + error))
    assert found["ci95"] == pytest.approx(expected, abs=0.3)
    assert found["difference"] == pytest.approx(100 * paired.mean())


def test_copies_of_rows_narrow_no_interval() -> None:
    """Each row three times has the intervals of each row once, if its copies are drawn together, and no exact test."""
    random = np.random.default_rng(5)
    truth, a, b = random.integers(0, 2, (3, 90))
    thrice, lengths = np.repeat(np.arange(90), 3), np.arange(90)

    def found(rows: np.ndarray, parts: np.ndarray | None) -> dict[str, Any]:
        both, owners, every = [a[rows], b[rows]], np.arange(len(rows)), np.ones(len(rows), np.bool_)
        return compared(KIND, both, both, truth[rows], every, owners, lengths[rows], "xy", parts)

    once, alone, together = found(lengths, None), found(thrice, None), found(thrice, thrice)
    for metric, values in once["scores"].items():
        assert together["scores"][metric]["ci95"] == pytest.approx(values["ci95"])
        assert np.ptp(alone["scores"][metric]["ci95"]) < 0.7 * np.ptp(values["ci95"])
    assert together["mcnemar"] is None
    assert alone["mcnemar"] is not None
    assert once["agreement"]["ci95"] == pytest.approx(together["agreement"]["ci95"], abs=1.5)  # Wilson's, and bootstrap
    assert [group["agreement"]["percent"] for group in together["lengths"]] == pytest.approx(
        [group["agreement"]["percent"] for group in once["lengths"]]
    )


@pytest.mark.parametrize("same", [True, False])
def test_models_that_always_agree_have_an_interval_too(same: bool) -> None:
    """Wilson's for as many rows as there are parts: the bootstrap would have no width."""
    a, parts = np.ones(40, np.int64), np.repeat(np.arange(20), 2)
    copies, once = (
        agreement(KIND, a[:n], (a if same else 1 - a)[:n], np.arange(n), of) for n, of in ((40, parts), (20, None))
    )
    assert copies == once
    assert np.ptp(once["ci95"]) > 10


def test_parts_that_are_most_of_a_subset_are_not_drawn() -> None:
    """A part may be few of all rows and many of the labelled ones, which are then drawn one by one."""
    random = np.random.default_rng(2)
    truth, a, b = random.integers(0, 2, (3, 300))
    parts = np.where(np.arange(300) < 20, 0, np.arange(300))  # 7% of all rows, and a third of the labelled ones
    chosen = np.arange(300) < 60
    found = compared(KIND, [a, b], [a, b], truth, chosen, np.arange(300), np.arange(300), "xy", parts)
    alone = compared(KIND, [a, b], [a, b], truth, chosen, np.arange(300), np.arange(300), "xy", None)
    assert found["scores"] == alone["scores"]
    assert alone["mcnemar"] is not None
    assert found["mcnemar"] is None  # which takes rows for independent


def test_interval_is_paired_and_seeded() -> None:
    truth = np.random.default_rng(0).integers(0, 3, 50)
    a = (truth + (np.arange(50) % 4 == 0)) % 3
    assert scores(["accuracy"], a, a, truth)["accuracy"]["ci95"] is None
    assert scores(["accuracy"], a, truth, truth) == scores(["accuracy"], a, truth, truth)


def test_units_that_differ_are_counted_as_they_are_drawn() -> None:
    """The interval of 4 parts on which the same model is right is without 0, where an exact test has a p of 0.125."""
    truth, parts = np.zeros(200, np.int64), np.arange(200) // 2
    a = (np.arange(200) < 8).astype(np.int64)
    alone, together = (scores(["accuracy"], a, truth, truth, of)["accuracy"] for of in (None, parts))
    assert together["ci95"][0] > 0
    assert (alone["differing"], together["differing"]) == (8, 4)
    assert binomtest(4, 4).pvalue == pytest.approx(0.125)


def test_agreement_has_wilsons_interval() -> None:
    n, p, z = 20, 0.9, 1.959964
    centre, half = p + z**2 / (2 * n), z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    expected = [100 * (centre + sign * half) / (1 + z**2 / n) for sign in (-1, 1)]
    found = agreement(KIND, np.ones(n, np.int64), np.array([1] * 18 + [0, 0]), np.arange(n))
    assert (found["percent"], found["ci95"]) == (pytest.approx(90), pytest.approx(expected))


def test_recall_and_f1_are_those_of_scikit_learn() -> None:
    random = np.random.default_rng(3)
    truth, a, b = random.integers(0, 4, (3, 80))
    rows = classes(KIND, a, b, np.arange(80), truth, "wxyz")
    for name, predicted in (("a", a), ("b", b)):
        recalls, f1 = (100 * score(truth, predicted, average=None) for score in (recall_score, f1_score))
        assert [row[name]["recall"] for row in rows] == pytest.approx(recalls)
        assert [row[name]["f1"] for row in rows] == pytest.approx(f1)
        assert [row["predicted"][name] for row in rows] == np.bincount(predicted).tolist()
    assert [row["rows"] for row in rows] == np.bincount(truth).tolist()


def test_a_label_that_does_not_occur_has_no_value() -> None:
    predicted, truth = np.zeros((3, 2), np.int64), np.zeros((3, 2), np.int64)
    predicted[0, 1] = 1
    rows = classes(TASK_TYPES["multi_label"], predicted, truth, np.arange(3), truth, "ab")
    assert [row["a"] for row in rows] == [{"recall": None, "f1": None}, {"recall": None, "f1": 0}]
    assert rows[1]["predicted"] == {"a": 1, "b": 0}


def test_rows_without_a_label_count_for_agreement_alone() -> None:
    random = np.random.default_rng(4)
    truth, a, b = random.integers(0, 3, (3, 60))
    chosen, lengths = np.arange(60) % 3 > 0, random.integers(1, 30, 60)

    def found(rows: np.ndarray, chosen: np.ndarray) -> dict[str, Any]:
        both = (a[rows], b[rows])
        return compared(KIND, both, both, truth[rows], chosen, np.arange(len(rows)), lengths[rows], "xyz")

    whole, alone = found(np.arange(60), chosen), found(np.flatnonzero(chosen), np.ones(40, np.bool_))
    for key in ("scores", "mcnemar", "classes"):
        assert whole[key] == alone[key]
    assert whole["agreement"]["percent"] == pytest.approx(100 * np.mean(a == b))
    assert sum(group["rows"] for group in whole["lengths"]) == 60
    assert sum(group["labelled_rows"] for group in whole["lengths"]) == 40
    without = compared(KIND, (a, b), (a, b), None, chosen, np.arange(60), lengths, "xyz")
    assert without["scores"] is without["mcnemar"] is None
    assert without["agreement"] == whole["agreement"]


@pytest.mark.parametrize("name", ["reranking", "retrieval"])
def test_rankings_have_no_scores_by_length(name: str) -> None:
    """Of three documents of a query, a third of the rows has one: a ranking of it is perfect, whatever the model."""
    kind, random = TASK_TYPES[name], np.random.default_rng(6)
    texts = [[f"query {row // 3}" for row in range(30)], [f"document {row}" for row in range(30)]]
    truth = kind.truth((np.arange(30) % 3 == 0).astype(np.float32), texts, ())
    outputs = [random.normal(size=(30, 8)).astype(np.float32) for _ in "ab"]
    cosines = [each[:, 0] for each in outputs]
    judged = cosines if kind.grade is None else [kind.grade(each, truth) for each in outputs]
    every, rows = np.ones(30, np.bool_), np.arange(30)
    found = compared(kind, cosines, judged, truth, every, rows, rows % 3, ())
    assert found["scores"].keys() == {*kind.metrics}
    assert [group["rows"] for group in found["lengths"]] == [10, 10, 10]
    assert [{*group} for group in found["lengths"]] == [{"from", "to", "rows", "agreement"}] * 3
    table = page.lengths({"kind": name, **found})
    assert table.columns == ("Tokens", "Rows", "Pearson of A and B")
    assert [len(row) for row in table.rows] == [3, 3, 3]
