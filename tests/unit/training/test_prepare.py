"""Which layers of the teacher the layers of a student were copied from."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from distill.config import Prune, Student, Train
from distill.plan import TEACHER, Source, Step
from distill.student import half_depth
from distill.training.prepare import kept_layers


def build(start: Source) -> Step:
    return Step("build", Train(build_student=True), sources={"start": (start,)})


def prune(start: Source, name: str = "prune") -> Step:
    return Step(name, Prune(), sources={"start": (start,)})


def train(start: Source, teacher: Source = TEACHER) -> Step:
    return Step("train", Train(), sources={"start": (start,), "teacher": (teacher,)})


@pytest.fixture
def ctx(tmp_path: Path) -> Any:
    """A run of a teacher with six layers. A pruned model keeps its first and third layer for task a."""
    (tmp_path / "config.json").write_text('{"model_type": "bert", "num_hidden_layers": 6}')
    return SimpleNamespace(
        config=SimpleNamespace(student=Student(layers=[0, 3, 5])),
        plan=SimpleNamespace(given_student=False),
        given=SimpleNamespace(teacher=str(tmp_path), key="teacher.name"),
        folder=SimpleNamespace(manifest=lambda step: {"tasks": {"a": {"layers": [0, 2]}, "b": {"layers": [1, 2]}}}),
    )


FINETUNED = Step("finetune_teacher", Train(role="teacher"), sources={"start": (TEACHER,)})


@pytest.mark.parametrize(
    ("start", "task", "layers"),
    [
        (build(TEACHER), None, [0, 3, 5]),
        (prune(FINETUNED), "a", [0, 2]),
        (prune(FINETUNED), "b", [1, 2]),
        (prune(build(TEACHER)), "a", [0, 5]),  # the first and third of the layers that were built
        (TEACHER, "a", None),  # neither built nor pruned
        (build(prune(FINETUNED)), "a", None),
        (prune(prune(FINETUNED), "again"), "a", None),
    ],
)
def test_layers_are_those_of_the_teacher(start: Source, task: str | None, layers: list[int] | None, ctx: Any) -> None:
    assert kept_layers(ctx, train(start, FINETUNED), task) == layers


def test_without_layers_half_of_them_are_kept(ctx: Any) -> None:
    ctx.config.student = Student()
    assert kept_layers(ctx, train(build(TEACHER)), None) == half_depth(6)


@pytest.mark.parametrize("teacher", [build(TEACHER), prune(FINETUNED)])
def test_a_student_as_teacher_has_other_layers(teacher: Step, ctx: Any) -> None:
    assert kept_layers(ctx, train(build(TEACHER), teacher), None) is None


def test_a_random_student_has_no_layers_of_the_teacher(ctx: Any) -> None:
    ctx.config.student.init = "random"
    assert kept_layers(ctx, train(build(TEACHER)), None) is None
