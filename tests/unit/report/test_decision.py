"""What the end of a run says to ship, and how it is used."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from distill.report.choose import Ask, choice
from distill.report.decision import Decision, decided
from distill.report.variants import Run, groups, variants
from tests.decoded import decoded

Document = dict[str, Any]
SELECTED = " It was chosen by the same scores that are reported here, so that they look better than they are."
NO_SPEEDUP = " This is no measurable speedup: the interval includes 1."
EXPORT = {"name": "export", "target": None, "kind": "export", "seconds": 3.0} | dict.fromkeys(
    ("tokens_per_second", "peak_memory_mib")
)


def of(results: Document) -> Decision:
    return decided(Run("out", decoded(results)))


def exported(results: Document, least: float | None = None) -> Document:
    results["stages"].append(EXPORT)
    return results if least is None else results | {"least_retained": least}


def test_a_student_that_retains_enough_is_shipped_and_compared_with_its_control(results: Document) -> None:
    made = of(exported(results, 93))
    assert made.sentences == [
        "Ship student, int8 onnxruntime: it retains 93.1% (92.0 to 94.0) of the teacher's score at 5.20x "
        "(5.04 to 5.41) the speed of the teacher's fastest float32 variant. It is the fastest variant that retains at "
        f"least 93%.{SELECTED}",
        "The same student trained without a teacher retains 87.6%: distillation gained 5.5 percentage points.",
    ]
    (use,) = made.uses
    code = use["code"] or ""
    compile(code, "shown", "exec")
    assert 'distill.load(\'out/export/cola\', backend="onnxruntime", scheme="int8")' in code


@pytest.mark.parametrize(
    ("ends", "distinguishable", "said"),
    [
        ([-0.9, 1.3], False, "the two are not distinguishable"),
        ([0.2, 1.3], True, "the student with the teacher retains 0.2 percentage points more than self-training"),
    ],
)
def test_a_gain_over_labels_alone_stands_beside_self_training(
    ends: list[float], distinguishable: bool, said: str, results: Document
) -> None:
    results["models"].append(copy.deepcopy(results["models"][-1]) | {"role": "self-trained", "name": "self-trained"})
    results["models"][-1]["retained"]["headline"] = 92.9
    form = {"scheme": "int8", "backend": "onnxruntime"}
    test = {"a": {"name": "student", **form}, "b": {"name": "self-trained", **form}, "difference": 0.2, "ci95": ends}
    results["tests"] = [test | {"p": 0.2, "test": "bootstrap", "scope": None, "distinguishable": distinguishable}]
    text = of(exported(results, 93)).sentences[1]
    assert text.endswith(f"gained 5.5 percentage points. The same student, self-trained, retains 92.9%: {said}.")


@pytest.mark.parametrize(
    ("facts", "asked", "call"),
    [
        ({"columns": ["body"]}, '"a text"', '["a text"]'),
        ({"columns": ["query", 'the "document"']}, "--file FILE", '[("query", "the \\"document\\"")]'),
        ({"columns": ["question"], "choices": True}, "--file FILE", "[(\"question\", ['one choice', 'another'])]"),
        ({}, "--file FILE", '["a text"]'),
    ],
)
def test_the_command_and_the_code_ask_what_the_model_takes(
    facts: Document, asked: str, call: str, results: Document
) -> None:
    for row in results["coverage"]:
        row.update(facts)
    (use,) = of(exported(results, 93)).uses
    command = f"python -m distill.predict out/export/cola --backend onnxruntime --scheme int8 {asked}"
    assert use["command"] == command
    assert f"\nmodel.predict({call})" in (use["code"] or "")
    compile(use["code"] or "", "shown", "exec")


def test_without_such_a_student_it_is_your_model_in_a_faster_form(results: Document) -> None:
    made = of(exported(results))
    ship, nearest = made.sentences
    assert ship.startswith("Ship your model in bf16 torch: it retains 99.9% ")
    assert ship.endswith(f" It is the fastest variant that retains at least 97%.{SELECTED}")
    assert nearest == (
        "No student retains 97%: the nearest is student, int8 onnxruntime, which retains 93.1% (92.0 to 94.0) of the "
        "teacher's score at 5.20x (5.04 to 5.41)."
    )
    of_teacher, of_student = made.uses
    assert (of_teacher["note"] or "").startswith("It was scored and timed as bf16 torch; ")
    assert (of_student["command"] or "").startswith("python -m distill.predict out/export/cola ")


@pytest.mark.parametrize(
    ("speed", "ends", "said"),
    [
        (0.9, [0.85, 0.95], " It is slower than your model, and the fastest student that "),
        (0.97, [0.9, 1.05], f"{NO_SPEEDUP} It is the fastest student that "),
        (1.02, [0.97, 1.07], f"{NO_SPEEDUP} It is the fastest variant that "),
    ],
)
def test_a_speedup_whose_interval_includes_1_is_none(
    speed: float, ends: list[float], said: str, results: Document
) -> None:
    """As in the headline: neither is the student faster, nor is it slower."""
    results["models"][8]["speedup"] |= {"best_teacher": speed, "ci95": ends}
    ship = of(exported(results, 93)).sentences[0]
    assert ship.startswith("Ship student, int8 onnxruntime: ")
    assert f" the speed of the teacher's fastest float32 variant.{said}retains at least 93%." in ship


def test_what_is_chosen_is_chosen_on_the_development_rows(results: Document) -> None:
    for model in results["models"]:
        if model["retained"] and model["role"] != "baseline":
            model["retained"]["development"] = 98.2 if model["role"] == "teacher" else 96.4
    ship, nearest = of(exported(results, 93)).sentences
    assert "student" in ship
    assert " at least 93% on the development rows (96.4% there)." in ship
    assert "same scores" not in ship
    ship, nearest = of(results).sentences
    assert ship.startswith("Ship your model in bf16 torch")
    assert nearest == (
        "No student retains 97% on the development rows: the nearest is student, int8 onnxruntime, which retains 96.4% "
        "there and 93.1% (92.0 to 94.0) of the teacher's score at 5.20x (5.04 to 5.41) on the reported rows."
    )


def test_a_share_that_rounds_to_the_limit_has_the_digits_that_tell(results: Document) -> None:
    for model in results["models"]:
        if model["retained"] and model["role"] == "teacher":
            model["retained"]["development"] = 98.2
        elif model["retained"] and model["role"] == "student":
            model["retained"] |= {"development": 96.96, "headline": 96.996}
    _, nearest = of(results).sentences
    assert "which retains 96.96% there and 96.996% (" in nearest


def test_development_rows_that_the_model_may_know_are_named(results: Document) -> None:
    known = "Your model may have learned the development rows of cola before this run: on these rows"
    results["seen"] = ["cola"]
    assert not any(known in sentence for sentence in of(exported(results, 93)).sentences)  # it is not chosen on them
    for model in results["models"]:
        if model["retained"] and model["role"] != "baseline":
            model["retained"]["development"] = 98.2
    for least in (93, 99):
        assert of(results | {"least_retained": least}).sentences[-1].startswith(known), least
    runs = [Run("out", decoded(results))]
    assert known in choice(runs, variants(runs), groups(runs)[0], Ask(93.0))["sentences"][0]


def test_the_short_table_has_what_a_user_compares(results: Document) -> None:
    table = of(exported(results, 93)).table
    assert [row[:4] for row in table.rows] == [
        ("your model (teacher)", "fp32_medium torch", "80.1", "100.0 [98.9, 100.9]"),
        ("student (ship this)", "int8 onnxruntime", "74.3", "93.1 [92.0, 94.0]"),
        ("the same without a teacher", "int8 onnxruntime", "69.5", "87.6 [86.5, 88.5]"),
    ]
    assert table.roles == ["", "student", ""]


def test_a_form_that_was_only_timed_has_the_scores_of_the_same_arithmetic(results: Document) -> None:
    compiled = copy.deepcopy(results["models"][2]) | {"scheme": "bf16_compiled", "scores": {}, "macro": None}
    results["models"].append(compiled | {"retained": None})
    over = {"scheme": "bf16_compiled", "backend": "torch", "median": 2.5, "ci95": [2.4, 2.6]}
    results["models"][8]["speedup"]["over_kept"] = over
    _, row, *_ = of(exported(results, 93)).table.rows
    assert row[:4] == ("your model in bf16_compiled", "bf16_compiled torch", "80.0", "99.9 [98.8, 100.8]")


def test_each_target_has_a_row_and_the_nearest_student_is_offered(results: Document) -> None:
    """With several targets the slower student retains more, and is the nearer one although it is not the fastest."""
    slower = copy.deepcopy(next(m for m in results["models"] if m["role"] == "student" and m["scheme"] == "int8"))
    for model in results["models"]:
        if model["role"] in ("student", "baseline"):
            model["target"] = "8x"
    slower |= {"target": "4x", "name": "student 4x"}
    slower["retained"] |= {"headline": 96.0, "ci95": [95.0, 97.0]}
    slower["speedup"] |= {"best_teacher": 4.0, "ci95": [3.9, 4.1]}
    results["models"].append(slower)
    made = of(results)
    assert "the nearest is student 4x, " in made.sentences[1]
    names = [row[0] for row in made.table.rows]
    assert names == ["your model (teacher)", "your model in bf16 (ship this)", "student", "student 4x"]


def test_without_speeds_there_is_no_choice(results: Document) -> None:
    for model in results["models"]:
        model |= {"latency_ms": [], "speedup": None, "throughput_per_second": None}
    made = of(results)
    none = "No variant has both a speed and a share of the teacher's score, so there is no choice."
    assert made.sentences == [none]
    assert made.uses == []


@pytest.mark.parametrize("role", ["student", "teacher"])
def test_a_run_whose_models_failed_has_an_end(results: Document, role: str) -> None:
    for model in results["models"]:
        if model["role"] == role:
            model |= {"failed": "too little memory", "scores": {}, "macro": None, "retained": None, "speedup": None}
            model |= {"latency_ms": [], "throughput_per_second": None}
    assert of(results).sentences


def test_where_a_student_that_retains_enough_is_slower_the_model_itself_is_shipped(results: Document) -> None:
    for model in results["models"]:
        if (model["role"], model["scheme"]) == ("teacher", "bf16"):
            model["speedup"] |= {"best_teacher": 9.0, "ci95": [8.9, 9.1]}
            for row in model["latency_ms"]:
                row["median"] /= 10
    ship, other = of(exported(results, 93)).sentences
    assert ship.startswith("Ship your model in bf16 torch: ")
    assert other.startswith("No student that retains 93% is as fast: the nearest is student, int8 onnxruntime, which ")


def test_a_run_without_a_student_is_about_the_model_itself(results: Document) -> None:
    """`recipe=quantize` reports the forms of the teacher as those of the student."""
    results["models"] = [model for model in results["models"] if model["role"] != "baseline"]
    for model in results["models"]:
        model["step"] = "finetune_teacher"
    twin = next(model for model in results["models"] if model["scheme"] == "int8" and model["backend"] == "onnxruntime")
    results["models"].append(copy.deepcopy(twin) | {"role": "teacher", "name": "teacher"})  # which is not exported
    results["models"][-1]["speedup"] |= {"best_teacher": 5.4, "ci95": [5.3, 5.5]}
    made = of(exported(results, 93))
    assert made.sentences == [made.sentences[0]]
    assert made.sentences[0].startswith("Ship your model in int8 onnxruntime: ")
    assert [row[0] for row in made.table.rows] == ["your model (teacher)", "your model in int8 (ship this)"]
    assert "out/export/cola" in (made.uses[0]["command"] or "")
