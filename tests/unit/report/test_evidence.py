"""Sentences and tables of tests, chance, calibration and lengths, from results.json alone."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from distill.report import statistics_tables
from distill.report.checked import validate
from distill.report.detail import retained_table, tables
from distill.report.page import run_page
from distill.report.variants import Run
from distill.report.verdict import between, shown, turned
from distill.report.web.data import page_data
from tests.decoded import decoded

Results = dict[str, Any]
TEACHER, STUDENT, INT8, BASELINE = 1, 4, 8, 10
"""Places of models in the invented results: fp32_medium torch, fp32 torch, int8 onnxruntime, its baseline."""


def identity(model: dict[str, Any]) -> dict[str, str]:
    return {key: model[key] for key in ("name", "scheme", "backend")}


def add_test(results: Results, a: int, b: int, difference: float, p: float, scope: str | None = None) -> None:
    first, second = (identity(results["models"][place]) for place in (a, b))
    test = {"a": first, "b": second, "difference": difference, "ci95": [difference - 1, difference + 2], "p": p / 4}
    test |= {"p_corrected": p, "distinguishable": p < 0.05, "scope": scope}
    results.setdefault("tests", []).append(test | {"test": "bootstrap" if scope is None else "mcnemar"})


@pytest.fixture
def tested(results: Results) -> Results:
    """With tests, and all that the tables of this module show."""
    add_test(results, INT8, BASELINE, 4.8, 0.002)
    add_test(results, INT8, STUDENT, -0.4, 0.31)
    add_test(results, INT8, TEACHER, -6.0, 0.0002)
    add_test(results, INT8, TEACHER, -2.0, 0.4, "rte")
    add_test(results, INT8, TEACHER, -9.0, 0.01, "cola")
    results |= {"chance": {"rte": {"accuracy": 52.7}, "mrpc": {"f1": 81.2, "accuracy": 68.4}}, "near_chance": ["rte"]}
    results |= {"detectable": {"rte": 5.25, "mrpc": None}, "drawn_together": {"rte validation": 1262}}
    bins = [[0.6, 0.5, 10]]
    thirds = [{"from": 3, "to": 12, "rows": 90, "scores": {"accuracy": 83.0, "f1": 85.0}}]
    for place, ece in ((TEACHER, 0.031), (INT8, 0.082)):
        model = results["models"][place]
        calibration = {"ece": ece, "temperature": 1.5, "ece_scaled": 0.011, "bins": bins, "bins_scaled": bins}
        model |= {"calibration": {"rte": calibration}, "by_length": {"rte": thirds}, "near_constant": []}
    model["near_constant"] = ["rte"]
    model["by_length"] = {"rte": [thirds[0] | {"scores": {"accuracy": 80.0, "f1": 82.0}}]}
    model["retained"] |= {"above_chance": 84.21, "above_chance_ci95": [80.06, 88.0]}
    results["models"][TEACHER] |= {"retained": None, "score_ci95": {"rte": {"accuracy": [50.0, 60.0]}}}
    assert validate(results) == []
    return results


def test_a_tests_sentence_says_whether_scores_differ(tested: Results) -> None:
    results = decoded(tested)
    models = results.models
    differ, far, same = (between(results, models[INT8], models[other]) for other in (BASELINE, TEACHER, STUDENT))
    assert differ is not None
    assert far is not None
    assert same is not None
    assert shown(differ) == (
        "their scores differ: +4.8 points, 95% interval +3.8 to +6.8 (paired bootstrap over the rows, p = 0.002 after "
        "Holm's correction)"
    )
    assert "p < 0.001" in shown(far)
    assert shown(same).startswith("their scores are not distinguishable: -0.4 points")
    assert between(results, models[BASELINE], models[STUDENT]) is None


def test_a_test_is_found_in_both_directions(tested: Results) -> None:
    results = decoded(tested)
    models = results.models
    there, back = (between(results, models[a], models[b]) for a, b in ((INT8, BASELINE), (BASELINE, INT8)))
    assert there is not None
    assert back is not None
    assert (back.difference, back.ci95) == (-4.8, (-6.8, -3.8))
    assert (back.a, back.b) == (there.b, there.a)
    assert back.p == there.p
    assert turned(replace(there, ci95=None)).ci95 is None
    assert between(results, models[INT8], models[TEACHER], "rte") != between(results, models[INT8], models[TEACHER])


def test_the_page_has_each_test_as_text_and_the_ties_with_the_teacher(tested: Results) -> None:
    results = decoded(tested)
    shown_variants = page_data([Run("a", results)])["variants"]
    for place in (BASELINE, STUDENT, TEACHER):
        for a, b in ((INT8, place), (place, INT8)):
            test = between(results, results.models[a], results.models[b])
            assert test is not None
            assert shown_variants[a]["tests"][str(b)] == shown(test)
    assert shown_variants[INT8]["ties"] == {"rte": True, "cola": False}
    assert shown_variants[BASELINE]["ties"] == {}


def test_tables_show_what_is_known(tested: Results) -> None:
    chance, tests, calibration, lengths = statistics_tables.tables(decoded(tested))
    assert chance is not None
    assert chance.rows[0][:3] == ("rte", "accuracy", "52.7")
    assert chance.rows[0][3].endswith("[50.0, 60.0]")
    assert [row[-1] for row in chance.rows] == ["5.2", "-"]
    assert any(note.endswith("does not lie above chance: rte.") for note in chance.notes)
    assert any("student int8 onnxruntime (rte)" in note for note in chance.notes)
    assert tests is not None
    assert [(row[0], row[3]) for row in tests.rows] == [
        ("macro score without wnli", "differ"),
        ("macro score without wnli", "not distinguishable"),
        ("macro score without wnli", "differ"),
        ("rte", "not distinguishable"),
        ("cola", "differ"),
    ]
    assert tests.notes[-1].endswith("draws such rows together, 1,262 parts in all.")
    assert "not for the number of tasks: of 20 tasks without a difference, one is called different" in tests.notes[0]
    assert calibration is not None
    assert calibration.notes[0].endswith("makes no error on them, or may have learned them before the run.")
    assert calibration.rows == [
        ("rte", "student int8 onnxruntime", "0.082", "1.50", "0.011"),
        ("rte", "teacher fp32_medium torch", "0.031", "1.50", "0.011"),
    ]
    assert lengths is not None
    assert lengths.rows == [("rte", "3 to 12", "90", "84.0", "81.0", "-3.0")]


def test_chance_that_is_a_guess_is_named(tested: Results) -> None:
    for guessed in ([], ["rte"]):
        run = decoded(tested | {"guessed": guessed})
        notes = [*(statistics_tables.tables(run)[0] or retained_table(run)).notes, *retained_table(run).notes]
        assert sum("guesses classes" in note for note in notes) == len(guessed)
        assert any("above the best constant predictors or guesses, as" in note for note in notes) == bool(guessed)


def test_retained_has_a_fifth_way_where_it_is_known(tested: Results) -> None:
    table = retained_table(decoded(tested))
    assert table.title == "Retained %, five ways"
    assert table.rows[INT8][-1] == "84.2 [80.1, 88.0]"
    assert table.rows[STUDENT][-1] == "-"


def test_results_of_before_have_none_of_these_tables(results: Results) -> None:
    assert statistics_tables.tables(decoded(results)) == [None] * 4
    assert retained_table(decoded(results)).title == "Retained %, four ways"
    assert "Tests" not in {table.title for table in tables(decoded(results))}


def test_the_page_has_the_tables(tested: Results) -> None:
    assert {"Tests", "Calibration", "Scores by length", "Chance, and what the rows can show"} <= {
        getattr(block, "title", "") for block in run_page(Run("", decoded(tested)), "")
    }
