"""Which runs are seeds of one another, and in which order their values stand."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest

from distill.report import footnotes, gains, headline, model_rows, overview, pruning_table
from distill.report.seeds import over_seeds
from distill.report.table import models_table
from distill.report.variants import Run, variants
from tests.decoded import decoded, decoded_all

Results = dict[str, Any]
INT8 = 8
"""Index of the int8 student."""


def run_of(results: Results, seed: int, *words: str, kept: float | None = 92.0) -> Results:
    """The same run with another seed and more settings, whose int8 student retains so much; None: it failed."""
    run = copy.deepcopy(results)
    run["seeds"], run["command"] = [seed], " ".join([f"python -m distill recipe=distilbert seed={seed}", *words])
    if kept is None:
        run["models"][INT8] |= {"retained": None, "scores": {}, "macro": None, "failed": "out of memory"}
    else:
        run["models"][INT8]["retained"]["headline"] = kept
    return run


def seeds(runs: list[Results]) -> list[list[int]]:
    return [[seed for run in group for seed in run.seeds] for _, group in overview.grouped(decoded_all(runs))]


@pytest.mark.parametrize(
    "word",
    [
        *(f"stages.evaluate.{which}=null" for which in ("baseline", "self_trained", "pruned", "quantized")),
        "'stages.evaluate.shapes=[[1, 128], [8, 128]]'",
        "stages.evaluate.repeats=4",
        "'report.purpose=choose lr=2 or lr=3'",
    ],
)
def test_what_changes_no_row_makes_no_other_run(results: Results, word: str) -> None:
    runs = [run_of(results, 0), run_of(results, 1, word)]
    assert seeds(runs) == [[0, 1]]
    assert {entry.settings for entry in overview.entries(decoded_all(runs))} == {"distilbert"}


@pytest.mark.parametrize(
    "word",
    [
        "stages.evaluate.student=prune",
        "stages.evaluate.teacher=finetune",
        "stages.evaluate.baseline=other",
        "stages.evaluate.quantized=other",
        "pipeline=[finetune_teacher,evaluate]",
        "temperature=2",
    ],
)
def test_a_setting_that_changes_what_a_row_stands_for_makes_another_run(results: Results, word: str) -> None:
    runs = [run_of(results, 0), run_of(results, 1, word, kept=55.0)]
    assert seeds(runs) == [[0], [1]]
    chosen = [v for v in variants([Run(str(run["seeds"]), decoded(run)) for run in runs]) if v.first.role == "student"]
    assert {v.runs for v in chosen} == {(0,), (1,)}
    assert {entry.settings for entry in overview.entries(decoded_all(runs))} == {"distilbert", f"distilbert {word}"}
    made = gains.table(decoded_all(with_tests(runs)))
    assert made is not None
    assert [row[-1] for row in made.rows] == ["0", "1"]


def test_the_text_of_a_purpose_is_no_setting(results: Results) -> None:
    runs = [run_of(results, 0, "temperature=2", "'report.purpose=why target.speedup=8'")]
    assert overview.settings(decoded(runs[0])) == "distilbert temperature=2"
    assert overview.settings(decoded(run_of(results, 0, "tasks.names='[cola"))) == "distilbert tasks.names='[cola"


def test_the_groups_do_not_depend_on_the_order_of_the_folders(results: Results) -> None:
    word = "stages.evaluate.baseline=null"
    every = [run_of(results, 0), run_of(results, 1), run_of(results, 0, word), run_of(results, 1, word)]
    for runs in itertools.permutations(every):
        groups = overview.grouped(decoded_all(list(runs)))
        found = {(title, *(run.command.endswith(word) for run in group)) for title, group in groups}
        assert found == {("distilbert", False, False), (f"distilbert {word}", True, True)}
        assert {tuple(seed for run in group for seed in run.seeds) for _, group in groups} == {(0, 1)}


def test_of_runs_that_differ_in_something_unknown_none_is_averaged(results: Results) -> None:
    every = [run_of(results, 0), run_of(results, 0, kept=94.0), run_of(results, 1)]
    for runs in itertools.permutations(every):
        assert sorted(seeds(list(runs))) == [[0], [0], [1]]


def test_values_stand_in_the_order_of_the_seeds(results: Results) -> None:
    """Folders are sorted by their names: seed 10 comes before seed 2."""
    runs = [run_of(results, 10, kept=95.0), run_of(results, 1, kept=None), run_of(results, 2, kept=91.0)]
    row = overview.table(overview.entries(decoded_all(runs))).rows[4]
    low, high = over_seeds([91.0, 95.0], [(92.0, 94.0)] * 2) or (0.0, 0.0)
    assert row[5] == f"93.0 [{low:.1f}, {high:.1f}] (-, 91.0, 95.0)"
    assert row[-1] == "1, 2, 10"
    (variant,) = [v for v in variants([Run("", decoded(run)) for run in runs]) if v.name == "student, int8 onnxruntime"]
    assert variant.runs == (1, 2, 0)


def test_values_of_pruned_models_stand_in_the_order_of_the_seeds(results: Results) -> None:
    form = {"backend": "onnxruntime", "scheme": "int8"}
    runs = [run_of(results, 1, kept=95.0), run_of(results, 0, kept=91.0)]
    for run, speed in zip(runs, (None, 2.1), strict=True):
        cut = {"step": "prune", "target": None, "layers": 2, "hidden": 64, "ffn": 96, "tried": 9, **form}
        run["pruned"] = [cut | {"predicted_speedup": 2.0, "predicted_ms": 1.0, "measured_speedup": speed}]
        run["pruned"][0]["measured_ms"] = None if speed is None else 1.0
    table = pruning_table.table(decoded_all(runs))
    assert table is not None
    (row,) = table.rows
    assert row[4] == "2.10x (2.10, -)"
    assert row[6].endswith("] (91.0, 95.0)")
    assert row[-1] == "0, 1"
    del runs[0]["models"][INT8]
    table = pruning_table.table(decoded_all(runs))
    assert table is not None
    assert table.rows[0][6].endswith("] (91.0, -)")


def with_tests(runs: list[Results], without: int | None = None) -> list[Results]:
    """The runs with a test of the student in torch float32 against its baseline; that of seed `without` has none."""
    form = {"backend": "torch", "scheme": "fp32"}
    made = []
    for run in copy.deepcopy(runs):
        gain = 3.0 + run["seeds"][0]
        test = {"a": {"name": "student", **form}, "b": {"name": "baseline", **form}, "scope": None, "test": "bootstrap"}
        test |= {"difference": gain, "ci95": [gain - 1, gain + 1], "p": 0.01, "distinguishable": True}
        run["tests"] = [] if run["seeds"] == [without] else [test]
        run["models"] = [m for m in run["models"] if (m["backend"], m["scheme"]) == ("torch", "fp32")]
        made.append(run)
    return made


def test_gains_are_of_the_seeds_that_have_tested_them(results: Results) -> None:
    runs = with_tests([run_of(results, seed) for seed in (1, 0)], without=0)
    made = gains.table(decoded_all(runs))
    assert made is not None
    assert [row[3:] for row in made.rows] == [("+4.0 [+3.0, +5.0]", "1")]
    first, second = decoded_all(with_tests([run_of(results, seed) for seed in (0, 1)]))
    pairs = [(run, *model_rows.pair(run)) for run in (first, second)]
    assert gains.over_runs([pairs[0], None, pairs[1]]).endswith("] (+3.0, -, +4.0)")


def test_gains_in_another_variant_are_not_in_the_mean(results: Results) -> None:
    runs = with_tests([run_of(results, seed) for seed in (0, 1, 2)])
    for each in [*runs[2]["models"], runs[2]["tests"][0]["a"], runs[2]["tests"][0]["b"]]:
        each["backend"] = "openvino" if each.get("role") != "teacher" else "torch"
    made = gains.table(decoded_all(runs))
    assert made is not None
    assert [row[-1] for row in made.rows] == ["0, 1"]


def test_a_single_round_has_no_interval(results: Results) -> None:
    """That of its only ratio would be the narrowest of all."""
    for model in results["models"]:
        for row in model.get("latency_ms") or ():
            row["repeats"] = 1
        if model["speedup"]:
            model["speedup"]["ci95"] = [model["speedup"]["best_teacher"]] * 2
    run = decoded(results)
    assert model_rows.interval(run.models[INT8], "speedup") is None
    assert model_rows.interval(run.models[INT8], "retained") is not None
    assert "5.20x" in [cell for row in models_table(run).rows for cell in row]
    assert "at 5.20x the speed of" in headline.headline(run)
    text = footnotes.timing(run)
    assert "There was 1 round, with " in text
    assert ". So speedups have no interval." in text
