"""Tables of detection, of spans by type and of rankings, from results.json alone."""

from __future__ import annotations

from typing import Any

import pytest

from distill.evaluation.entities import of_counts
from distill.report.checked import validate
from distill.report.detail import tables
from distill.report.kind_tables import beside_table, detection_table, entities_table
from distill.report.variants import Run
from distill.report.web.data import page_data
from distill.runtime.storage import structs
from tests.decoded import decoded

Results = dict[str, Any]
TEACHER, INT8 = 1, 8
"""Places of models in the invented results."""


@pytest.fixture(autouse=True)
def reference(results: Results) -> None:
    """This teacher is the one that all models are compared with."""
    results["models"][TEACHER]["retained"] = None


def detection(roc_auc: float | None, threshold: float | None) -> dict[str, Any]:
    found = {"positives": 1203, "negatives": 20, "roc_auc": roc_auc, "average_precision": 55.5, "threshold": threshold}
    found["chosen_on"] = 1800
    return found | {"recall": 50.0 if threshold else None, "false_positives": 1.25 if threshold else None}


def test_there_are_no_such_tables_without_such_tasks(results: Results) -> None:
    every = decoded(results)
    assert [detection_table(every), entities_table(every), beside_table(every)] == [None] * 3


def test_labels_stand_beside_each_other_for_teacher_and_student(results: Results) -> None:
    for place, auc in ((TEACHER, 91.26), (INT8, 90.0)):
        results["models"][place]["detection"] = {"rte": {"bad": detection(auc, 0.93751), "fine": detection(None, None)}}
    assert validate(results) == []
    table = detection_table(decoded(results))
    assert table is not None
    assert [(row[1], row[2].split()[0]) for row in table.rows] == [
        *(("bad", "teacher"), ("bad", "student"), ("fine", "teacher"), ("fine", "student"))
    ]
    assert table.rows[0][3:] == ("1,203", "91.3", "55.5", "0.9375", "1,800", "50.0", "1.25")
    assert table.rows[3][3:] == ("1,203", "-", "55.5", "-", "1,800", "-", "-")
    assert "chosen on 0 where the model may have learned them before the run" in table.notes[0]
    assert "Detection of labels" in [each.title for each in tables(decoded(results))]
    assert page_data([Run("", decoded(results))])["variants"]
    for wrong in (0.0, 1.0, 1.5):
        results["models"][INT8]["detection"]["rte"]["bad"]["threshold"] = wrong
        assert "threshold" in validate(results)[0]


@pytest.mark.parametrize(("split", "named"), [("rte validation", True), ("cola validation", False)])
def test_rows_that_share_a_text_are_named_beside_intervals_that_ignore_it(
    split: str, named: bool, results: Results
) -> None:
    results["models"][TEACHER]["detection"] = {"rte": {"bad": detection(90.0, 0.5)}}
    table = detection_table(decoded(results | {"drawn_together": {split: 120}}))
    assert table is not None
    said = [note for note in table.notes if note.startswith("Some rows of rte validation share a text.")]
    assert bool(said) == named


@pytest.mark.parametrize(
    ("threshold", "text"),
    [
        (0.5, "0.500"),
        (0.012345, "0.0123"),
        (1.2345e-7, "0.000000123"),
        (1 - 1.2345e-7, "0.999999877"),
        (1.88e-12, "0.00000000000188"),
        (1 - 1.88e-12, "0.99999999999812"),
    ],
)
def test_thresholds_near_the_ends_keep_their_digits(threshold: float, text: str, results: Results) -> None:
    results["models"][TEACHER]["detection"] = {"rte": {"bad": detection(90.0, threshold)}}
    table = detection_table(decoded(results))
    assert table is not None
    assert table.rows[0][6] == text
    shown = page_data([Run("", decoded(results))])["variants"][TEACHER]["detection"]["rte"]["bad"]["threshold"]
    assert min(shown, 1 - shown) == pytest.approx(min(threshold, 1 - threshold), rel=1e-3)


def test_spans_have_a_row_for_all_types(results: Results) -> None:
    for place in (TEACHER, INT8):
        types = {"PER": of_counts(4, 2, 1, 2, 1), "LOC": of_counts(0, 2, 0, 0, 0)}
        results["models"][place]["entities"] = {"rte": structs.plain(types)}
    assert validate(results) == []
    table = entities_table(decoded(results))
    assert table is not None
    assert [row[1] for row in table.rows] == ["PER", "PER", "LOC", "LOC", "(all types)", "(all types)"]
    assert table.rows[0][3:] == ("50.0", "25.0", "33.3", "4", "1", "2", "1")
    assert table.rows[4][3:] == ("25.0", "25.0", "25.0", "4", "1", "2", "1")
    assert [len(row) for row in table.rows] == [len(table.columns)] * 6
    results["models"][INT8]["entities"]["rte"]["ORG"] = structs.plain(of_counts(0, 1, 0, 0, 0))
    table = entities_table(decoded(results))
    assert table is not None
    assert [row[1] for row in table.rows] == ["PER", "PER", "LOC", "LOC", "ORG", "(all types)", "(all types)"]


def test_metrics_of_rankings_stand_beside_each_other(results: Results) -> None:
    for place in (TEACHER, INT8):
        results["models"][place]["scores"]["rte"] = {"ndcg_at_10": 80.0, "mrr_at_10": 70.0}
        results["models"][place]["beside"] = {"rte": {"map": 60.25}}
    assert validate(results) == []
    table = beside_table(decoded(results))
    assert table is not None
    assert [(row[1], *row[3:]) for row in table.rows] == [
        *[("ndcg_at_10", "80.0", "yes")] * 2,
        *[("mrr_at_10", "70.0", "yes")] * 2,
        *[("map", "60.2", "no")] * 2,
    ]


def test_rankings_whose_score_has_all_metrics_are_listed_and_others_not(results: Results) -> None:
    for place in (TEACHER, INT8):
        results["models"][place]["scores"]["rte"] = {"ndcg_at_10": 80.0, "mrr_at_10": 70.0}
    assert beside_table(decoded(results)) is None
    for place in (TEACHER, INT8):
        results["models"][place]["scores"]["rte"]["map"] = 60.0
    table = beside_table(decoded(results))
    assert table is not None
    assert {row[0] for row in table.rows} == {"rte"}
    assert {row[4] for row in table.rows} == {"yes"}
    assert len(table.rows) == 6
