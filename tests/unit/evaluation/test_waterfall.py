"""The waterfall, by rows written out by hand."""

from __future__ import annotations

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from distill.evaluation.results import Model, Retained
from distill.evaluation.time_results import Speedup
from distill.evaluation.waterfall import waterfall
from distill.inference.variants import Role


def row(
    role: Role, backend: str, scheme: str, speedup: float, retained: float | None, target: str | None = None
) -> Model:
    kept = Retained(macro=None, headline=retained, mean_of_ratios=None, worst=None, ci95=None)
    return Model(
        name=role,
        scheme=scheme,
        backend=backend,
        role=role,
        step="finetune_teacher" if role == "teacher" else "recover",
        target=None if role == "teacher" else target,
        retained=None if retained is None else kept,
        speedup=Speedup(best_teacher=speedup, ci95=None, same_backend=None),
    )


TEACHER = [row("teacher", "torch", "fp32", 0.8, None), row("teacher", "openvino", "fp32", 1.0, None)]
STUDENT = [
    row("student", "torch", "fp32", 1.6, 97.0),
    row("student", "openvino", "fp32", 2.0, 97.1),
    row("student", "openvino", "int8", 4.0, 96.0),
    row("student", "onnxruntime", "int8", 3.0, 95.0),
]


def steps(models: list[Model], changed: list[str], target: str | None) -> list[tuple[str, float, float | None]]:
    return [(each.step, each.speedup, each.retained) for each in waterfall(models, changed, target, fastest(models))]


def fastest(models: list[Model]) -> Model | None:
    scored = [each for each in models if each.role == "student" and each.retained]
    return max(scored, key=lambda each: each.speedup.best_teacher if each.speedup else 0.0, default=None)


def test_each_measured_step_is_cumulative() -> None:
    assert steps([*TEACHER, *STUDENT], ["depth", "width"], None) == [
        ("teacher", 0.8, 100.0),
        ("depth and width", 1.6, 97.0),
        ("runtime", 2.0, 97.1),
        ("int8", 4.0, 96.0),
    ]


def test_recovery_is_apart_from_the_cut_where_the_pruned_model_is_measured() -> None:
    pruned = row("pruned", "torch", "fp32", 1.6, 60.0)
    found = steps([*TEACHER, pruned, *STUDENT], ["depth", "vocabulary"], None)
    assert found[1:3] == [("depth", 1.6, 60.0), ("vocabulary and recovery", 1.6, 97.0)]


@pytest.mark.parametrize(
    ("removed", "names"),
    [
        (("openvino", "fp32"), ["teacher", "depth", "int8"]),
        (("openvino", "int8"), ["teacher", "depth", "int8"]),  # onnxruntime int8, without its float32
        (("torch", "fp32"), []),
    ],
)
def test_what_no_row_measures_is_left_out(removed: tuple[str, str], names: list[str]) -> None:
    models = [*TEACHER, *(m for m in STUDENT if (m.backend, m.scheme) != removed)]
    assert [name for name, *_ in steps(models, ["depth"], None)] == names


def test_the_fastest_form_may_be_the_student_itself_or_a_runtime() -> None:
    assert steps([*TEACHER, STUDENT[0]], [], None) == [("teacher", 0.8, 100.0), ("training", 1.6, 97.0)]
    assert [name for name, *_ in steps([*TEACHER, *STUDENT[:2]], ["depth"], None)] == ["teacher", "depth", "runtime"]


def test_forms_that_are_not_scored_or_failed_are_not_the_last_step() -> None:
    failed = replace(row("student", "torchao", "int8", 0, None), speedup=UNSET, retained=UNSET, failed="no compiler")
    compiled = row("student", "torch", "fp32_compiled", 9.0, None)
    assert steps([*TEACHER, *STUDENT, failed, compiled], ["depth"], None)[-1] == ("int8", 4.0, 96.0)


def test_each_target_has_its_own() -> None:
    several = [row("student", "torch", "fp32", speed, 97.0, target) for target, speed in (("2x", 1.9), ("3x", 2.8))]
    found = waterfall([*TEACHER, *several], ["depth"], "3x", several[1])
    assert [(each.speedup, each.target) for each in found] == [(0.8, "3x"), (2.8, "3x")]


def test_forms_of_the_teacher_are_no_students_that_were_trained() -> None:
    """`recipe=quantize` reports the teacher in other forms as the student, as does a budget that keeps the teacher."""
    forms = [replace(each, step=TEACHER[0].step) for each in STUDENT]
    assert steps([*TEACHER, *forms], [], None) == [("teacher", 0.8, 100.0), ("runtime", 2.0, 97.1), ("int8", 4.0, 96.0)]
    assert steps([*TEACHER, forms[0]], [], None) == []
