"""A run with several targets: its headline, tables, pictures and cards."""

from __future__ import annotations

import copy
import runpy
from pathlib import Path
from typing import Any

import pytest

from benchmarks.results_table import pruned_points
from distill.report import (
    figure,
    footnotes,
    headline,
    markdown,
    model_card,
    model_rows,
    overview,
    page,
    pruning_table,
    validate,
)
from distill.report.detail import gain_tables
from distill.report.seeds import shown as shown_over
from distill.report.variants import Run
from tests.decoded import decoded, decoded_all, model_of

Results = dict[str, Any]
model = runpy.run_path(str(Path(__file__).parent / "conftest.py"))["model"]
KEPT = {"2x": (97.5, 96.0, 91.0, 40.0), "4x": (93.0, 92.0, 92.5, 20.0)}
"""Target -> retained % of the student, of its int8 variant, of the baseline, and of the model before it recovered."""


def kept(*percents: float) -> list[str]:
    """Retained % with the intervals of `model`."""
    return [f"{percent:.1f} [{percent - 1.1:.1f}, {percent + 0.9:.1f}]" for percent in percents]


MEASURED = {"measured_ms": 52.0, "measured_speedup": 2.0}
NOT_MEASURED = {"measured_ms": None, "measured_speedup": None}


@pytest.fixture
def family(results: Results) -> Results:
    run = copy.deepcopy(results)
    run["models"] = [m for m in run["models"] if m["role"] == "teacher"]
    for label, (student, int8, baseline, pruned) in KEPT.items():
        speed = float(label[0])
        run["models"] += [
            model(f"student {label}", "student", "torch", "fp32", 70.0, 100 / speed, student, speed, label),
            model(f"student {label}", "student", "onnxruntime", "int8", 70.0, 40 / speed, int8, 2.5 * speed, label),
            model(f"pruned {label}", "pruned", "torch", "fp32", 30.0, 100 / speed, pruned, speed, label),
            model(f"baseline {label}", "baseline", "torch", "fp32", 66.0, 100 / speed, baseline, speed, label),
        ]
    shape = {
        "step": "prune",
        "layers": 4,
        "hidden": 384,
        "ffn": 576,
        "tried": 384,
        "scheme": "fp32",
        "batch": 8,
        "length": 128,
    }
    run["pruned"] = [
        {"target": "2x", **shape} | {"predicted_ms": 50.0, "predicted_speedup": 2.1} | MEASURED,
        {"target": "4x", **shape} | {"predicted_ms": 25.0, "predicted_speedup": 4.2} | NOT_MEASURED,
    ]
    run["stages"].append({**run["stages"][0], "name": "prune", "kind": "prune"})
    assert validate(run) == []
    return run


@pytest.mark.parametrize("kind", ["prune", "vocabulary"])
def test_a_student_that_was_not_trained_after_pruning_is_not_recovered(kind: str, family: Results) -> None:
    """The kind of its step decides, not the name."""
    other = copy.deepcopy(family)
    for model in other["models"]:
        model["step"] = "anything" if model["role"] == "student" else model["step"]
    other["stages"].append({**family["stages"][0], "name": "anything", "kind": kind})
    family["command"] = "python -m distill recipe=frontier tasks=glue output=a"
    other["command"] = "python -m distill recipe=frontier tasks=glue stages.prune.dimensions=[layers] output=b"
    other["models"] = [m for m in other["models"] if m["role"] in ("teacher", "student")]
    runs = [family, other]
    shown = overview.entries(decoded_all(runs))
    table = pruning_table.table(decoded_all(runs))
    assert table is not None
    recipe, layers = family["recipe"], f"{family['recipe']} stages.prune.dimensions=[layers]"
    assert table.rows == [
        ("2x", recipe, "4 x 384 x 576", "2.10x", "2.00x", *kept(40.0, 97.5, 91.0), "0"),
        ("2x", layers, "4 x 384 x 576", "2.10x", "2.00x", *kept(97.5), "-", "-", "0"),
        ("4x", recipe, "4 x 384 x 576", "4.20x", "-", *kept(20.0, 93.0, 92.5), "0"),
        ("4x", layers, "4 x 384 x 576", "4.20x", "-", *kept(93.0), "-", "-", "0"),
    ]
    assert table.notes[-3:] == [
        "Relative error of the predicted speedup, over 2 models: median 5.0%, largest 5.0%.",
        "At a measured speedup of 2x, interpolated between the models of a run: before recovery "
        f"40.0% ({recipe}), 97.5% ({layers}).",
        "Interpolated values are in the order of the table. They have no intervals, and are no test of which way to "
        "prune is better.",
    ]
    assert overview.table(shown).notes[0] == "Settings of every run: tasks=glue."
    blocks, _ = page.overview_page(decoded_all(runs))
    assert page.Heading("Pruned to a target") in blocks
    assert table in blocks
    del family["pruned"]
    assert pruning_table.table(decoded_all([family])) is None


def cut(run: str, target: str, *measured: tuple[float, float]) -> pruning_table.Cut:
    """The students of a target. measured: the speedup and the retained % of each seed."""
    students = {
        place: model_of(model("student", "student", "torch", "fp32", 70.0, 10.0, retained, speed, target))
        for place, (speed, retained) in enumerate(measured)
    }
    speeds: list[float | None] = [speed for speed, _ in measured]
    return pruning_table.Cut(run, target, list(students), [], [], speeds, {"student": students}, [])


def test_methods_are_compared_at_the_same_measured_speed() -> None:
    """On the line between a method's models, and not beyond them."""
    every = [
        cut("a", "2x", (1.5, 100.0)),
        cut("a", "4x", (3.5, 80.0)),
        cut("b", "2x", (2.0, 96.0)),
        cut("b", "4x", (5.0, 60.0)),
    ]
    every += [cut("c", "2x", (2.5, 99.0)), cut("c", "4x", (3.0, 90.0))]
    assert list(pruning_table._at_equal_speeds(every)) == [
        "At a measured speedup of 2x, interpolated between the models of a run: after recovery 95.0% (a), 96.0% (b)."
    ]


def test_the_speed_of_a_model_is_that_of_its_own_seed() -> None:
    """By the means over seeds of speeds and of scores, it would be 75 in place of 80."""
    both = [cut("a", "2x", (1.0, 100.0), (2.0, 90.0)), cut("a", "4x", (3.0, 80.0), (4.0, 30.0))]
    assert pruning_table._retained_at(2.5, both, "student") == pytest.approx((85 + 75) / 2)
    assert pruning_table._retained_at(1.5, both, "student") is None  # seed 1 has no model as slow
    assert pruning_table._retained_at(2.5, both, "pruned") is None


def test_models_of_several_seeds_are_one_row_and_one_curve(family: Results) -> None:
    other = copy.deepcopy(family)
    other["seeds"] = [1]
    other["pruned"][0] |= {"layers": 5, "predicted_speedup": 2.3, "measured_speedup": 2.2}
    for run in (family, other):
        run["command"] = f"python -m distill recipe=frontier seed={run['seeds'][0]}"
    next(m for m in other["models"] if m["name"] == "student 2x" and m["scheme"] == "fp32")["retained"]["headline"] = (
        95.5
    )
    table = pruning_table.table(decoded_all([family, other]))
    assert table is not None
    assert len(table.rows) == 2
    assert table.rows[0] == (
        "2x",
        family["recipe"],
        "4 x 384 x 576, 5 x 384 x 576",
        "2.20x (2.10, 2.30)",
        "2.10x (2.00, 2.20)",
        *(shown_over(both, [(both[0] - 1.1, both[0] + 0.9)] * 2) for both in ((40, 40), (97.5, 95.5), (91, 91))),
        "0, 1",
    )
    shown = pruned_points(decoded_all([family, other]))  # 4x was not timed
    name = f"recipe {family['recipe']}"
    assert {(p.role, p.line, round(p.speedup, 6), p.retained) for p in shown} == {
        ("student", name, 2.1, 96.5),
        ("pruned", name, 2.1, 40.0),
        ("baseline", name, 2.1, 91.0),
    }
    drawn = figure.svg(shown)
    assert all(
        drawn.count(f">{text}<") == 1 for text in (name, "student", "pruned, not recovered", "same student, no teacher")
    )


def test_every_student_is_in_the_headline_with_its_gain(family: Results) -> None:
    text = headline.headline(decoded(family))
    assert "96.0% [94.9, 96.9] at 5.00x (2x, int8 onnxruntime)" in text
    assert "; 92.0% [90.9, 92.9] at 10.00x (4x, int8 onnxruntime)." in text
    assert (
        "Gain over the same students trained without a teacher, in percentage points, as fp32 torch: +6.5 (2x), "
        "+0.5 (4x)." in text
    )
    assert model_rows.targets(decoded(family)) == ["2x", "4x"]


def test_names_of_models_are_labels_only(family: Results) -> None:
    before = headline.headline(decoded(family)), gain_tables(decoded(family)), figure.points(decoded(family))
    for model in family["models"]:
        model["name"] = "any name 3x"
    assert (headline.headline(decoded(family)), gain_tables(decoded(family)), figure.points(decoded(family))) == before


def test_without_a_baseline_there_is_no_table_of_gains(family: Results) -> None:
    family["models"] = [m for m in family["models"] if m["role"] != "baseline"]
    assert headline.headline(decoded(family)).endswith(headline.NO_BASELINE)
    assert gain_tables(decoded(family)) == []


def test_the_gain_over_self_training_is_told_apart_from_the_gain_over_the_baseline(family: Results) -> None:
    for baseline in [m for m in family["models"] if m["role"] == "baseline"]:
        control = copy.deepcopy(baseline) | {"role": "self-trained", "name": f"self-trained {baseline['target']}"}
        control["retained"]["headline"] += 2.0
        family["models"].append(control)
    assert validate(family) == []
    text = headline.headline(decoded(family))
    assert (
        "trained without a teacher, in percentage points, as fp32 torch: +6.5 (2x), +0.5 (4x). Gain over the same "
        "students, trained on the labels and, in the teacher's place, on the outputs of the baseline (self-training), "
        "in percentage points, as fp32 torch: +4.5 (2x), -1.5 (4x)." in text
    )
    over_baseline, over_self_trained = gain_tables(decoded(family))
    assert over_baseline.rows == [
        ("2x", "fp32 torch", "97.5", "91.0", "+6.5"),
        ("4x", "fp32 torch", "93.0", "92.5", "+0.5"),
    ]
    assert [row[2:] for row in over_self_trained.rows] == [("97.5", "93.0", "+4.5"), ("93.0", "94.5", "-1.5")]
    assert figure.svg(figure.points(decoded(family))).count(">same student, self-trained<") == 1


@pytest.mark.parametrize(
    ("least", "sentence"),
    [
        (
            96,
            "The fastest student that retains at least 96% is student 2x (int8 onnxruntime): 96.0% at 5.00x. It was",
        ),
        (97, "The fastest student that retains at least 97% is student 2x (fp32 torch): 97.5% at 2.00x."),
        (90, "The fastest student that retains at least 90% is student 4x (int8 onnxruntime): 92.0% at 10.00x."),
        (99, "No student retains 99%."),
    ],
)
def test_the_fastest_that_retains_enough_is_named(least: float, sentence: str, family: Results) -> None:
    family["least_retained"] = least
    assert validate(family) == []
    assert sentence in headline.headline(decoded(family))


def test_a_baseline_from_weights_trained_with_a_teacher_is_named_as_such(family: Results) -> None:
    family["taught_start"] = True
    assert validate(family) == []
    start = "trained without a teacher, from weights that were trained with one, in percentage points, as"
    assert f"Gain over the same students {start}" in headline.headline(decoded(family))


def test_labels_of_students_name_their_targets(family: Results) -> None:
    shown = figure.points(decoded(family))
    assert [(point.label, point.retained) for point in shown if point.line] == [
        ("2x, fp32 torch", 97.5),
        ("2x, int8 onnxruntime", 96.0),
        ("4x, int8 onnxruntime", 92.0),
    ]


def test_predicted_and_measured_speed_are_in_one_sentence(family: Results) -> None:
    first, second = footnotes.pruned(decoded(family))
    assert first.startswith("2x: pruned to 4 layers, 384 hidden and 576 FFN channels. Of 384 shapes tried, this ")
    assert first.endswith("at 8x128: predicted 2.10x, 50.0 ms; measured 2.00x, 52.0 ms.")
    assert second.endswith("25.0 ms; not measured.")
    assert first in markdown.text(page.run_page(Run("", decoded(family)), ""))
    given = {"step": "prune", "target": None, "layers": 2, "hidden": 384, "ffn": 1536}
    sizes = "runed to 2 layers, 384 hidden and 1536 FFN channels, as configured."
    assert footnotes.pruned(decoded(family | {"pruned": [given]})) == [f"P{sizes}"]
    both = [given, given | {"step": "prune_ffn"}]
    assert footnotes.pruned(decoded(family | {"pruned": both})) == [f"prune: p{sizes}", f"prune_ffn: p{sizes}"]


def test_the_card_of_a_student_without_a_teacher_does_not_say_that_it_was_distilled(family: Results) -> None:
    taught, untaught = (model_card(decoded(family | more), "4x", "rte") for more in ({}, {"untaught": True}))
    for said in ("knowledge-distillation", "A student distilled from", "its teacher's outputs"):
        assert said in taught
        assert said not in untaught
    assert "A student made from" in untaught


def test_the_card_is_that_of_one_student_among_several(family: Results) -> None:
    assert "| student 4x | student | torch | fp32 |" in markdown.text(page.run_page(Run("", decoded(family)), ""))
    card = model_card(decoded(family), "4x", "rte")
    assert "# student 4x: rte" in card
    assert "student 4x-rte" in card
