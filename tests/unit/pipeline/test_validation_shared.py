"""What student.heads=shared allows, and what it refuses before anything is loaded."""

from __future__ import annotations

from typing import Any

import pytest

from distill.config import load_config
from distill.data.task import Task
from distill.data.task_types import TASK_TYPES
from distill.pipeline import validation
from distill.pipeline.validation.shared import _tasks, unlike

SHARED = ["student.heads=shared", "stages.quantize.schemes=[onnxruntime]"]


def problems(recipe: str, *settings: str) -> list[str]:
    return validation.settings(load_config([f"recipe={recipe}", *SHARED, *settings]), recipe)


@pytest.mark.parametrize("recipe", ["distilbert", "minilmv2"])
def test_recipes_that_build_one_student_are_accepted(recipe: str) -> None:
    assert problems(recipe, "tasks.names=[package,corrupted]") == []


def test_a_given_student_is_accepted(tmp_path: Any) -> None:
    assert problems("task", "tasks=glue", f"tasks.path={tmp_path}", "student.name=someone/student") == []


@pytest.mark.parametrize(
    ("recipe", "settings", "expected"),
    [
        (
            "distilbert",
            ["stages.quantize.schemes=[bitsandbytes,onnxruntime]"],
            "stages.quantize.schemes: got bitsandbytes; must be of onnxruntime, onnxruntime_static, openvino where ",
        ),
        (
            "distilbert",
            ["stages.finetune.start=finetune_teacher"],
            "stages.finetune.start: got finetune_teacher; must be a given model, or a stage with one encoder for all ",
        ),
        (
            "distilbert",
            ["stages.export.start=finetune_teacher", "stages.export.quantized=null", "stages.export.evaluated=null"],
            "stages.export.start: got finetune_teacher; must be a stage that trains the student on tasks where ",
        ),
        (
            "distilbert",
            ["stages.quantize.start=finetune_teacher"],
            "stages.quantize.start: got finetune_teacher; must be a stage that trains the student on tasks where ",
        ),
        (
            "distilbert",
            ["stages.evaluate.student=finetune_teacher"],
            "stages.evaluate.student: got finetune_teacher; must be a stage that trains the student on tasks where ",
        ),
    ],
)
def test_settings_that_need_an_encoder_for_each_task_are_refused(
    recipe: str, settings: list[str], expected: str
) -> None:
    assert any(line.startswith(expected) for line in problems(recipe, *settings)), problems(recipe, *settings)


def made(**tasks: tuple[str, tuple[str, ...]]) -> dict[str, Task]:
    """Tasks by name, each with its kind and columns."""
    return {
        n: Task(n, TASK_TYPES[kind], columns, ("a", "b"), TASK_TYPES[kind].metrics)
        for n, (kind, columns) in tasks.items()
    }


def test_tasks_must_classify_the_same_texts() -> None:
    single, pair = ("classification", ("text",)), ("multi_label", ("question", "passage"))
    assert unlike(made(a=single, b=("multi_label", ("body",)))) == []
    assert unlike(made(a=pair, b=pair)) == []
    (line,) = unlike(made(a=single, b=pair))
    assert line.startswith("student.heads: got shared; must be own for tasks with one text (a) and with two (b), which")
    (line,) = unlike(made(a=single, b=("token_classification", ("tokens",))))
    assert line.endswith("must be own for token_classification, the kind of b; leave the task out")
    assert unlike(made(a=single)) == []


def test_a_task_is_not_called_as_the_text_of_a_prediction() -> None:
    lines = [*map(str, _tasks(["text", "topic"]))]
    assert lines[0].startswith("tasks.each.text: got text as the name of a task; must be another where student.heads")
    assert len(lines) == 1
