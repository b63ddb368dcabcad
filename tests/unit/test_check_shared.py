"""What student.heads=shared allows, and what it refuses before anything is loaded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from distill import check, inputs
from distill.config import load_config
from distill.data.kinds import KINDS
from distill.data.task import Task
from distill.errors import ConfigError

SHARED = ["student.heads=shared", "stages.quantize.schemes=[onnxruntime]"]


def problems(recipe: str, *settings: str) -> list[str]:
    return check.settings(load_config([f"recipe={recipe}", *SHARED, *settings]), recipe)


@pytest.mark.parametrize("recipe", ["distilbert", "minilmv2"])
def test_recipes_that_build_one_student_are_accepted(recipe: str) -> None:
    assert problems(recipe, "tasks.names=[package,corrupted]") == []


def test_a_given_student_is_accepted(tmp_path: Any) -> None:
    assert problems("task", "tasks=glue", f"tasks.path={tmp_path}", "student.name=someone/student") == []


@pytest.mark.parametrize(
    ("recipe", "settings", "expected"),
    [
        ("distilbert", ["tasks.names=[package]"], "student.heads: got shared; must be own with fewer than two tasks; "),
        ("prune", ["target.speedup=2"], "student.heads: got shared; must be own where prune changes the encoder of "),
        ("vocabulary", [], "student.heads: got shared; must be own where vocabulary changes the encoder of each task"),
        (
            "distilbert",
            ["stages.finetune.gates.kind=l0"],
            "stages.finetune.gates.kind: got l0; must be none where student.heads is shared; leave it out",
        ),
        (
            "distilbert",
            ["stages.finetune.quantization_aware=true"],
            "stages.finetune.quantization_aware: got true; must be false where student.heads is shared; leave it out",
        ),
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
            ["pipeline=[adapt,pretrain]"],
            "student.heads: got shared; must be own in a recipe that does not train a student on tasks; leave it out",
        ),
    ],
)
def test_settings_that_need_an_encoder_for_each_task_are_refused(
    recipe: str, settings: list[str], expected: str
) -> None:
    assert any(line.startswith(expected) for line in problems(recipe, *settings)), problems(recipe, *settings)


def context(**tasks: tuple[str, tuple[str, ...]]) -> Any:
    """Tasks by name, each with its kind and columns."""
    made = {
        name: SimpleNamespace(task=Task(name, KINDS[kind], columns, ("a", "b"), KINDS[kind].metrics))
        for name, (kind, columns) in tasks.items()
    }
    return SimpleNamespace(shared=True, tasks=made)


def test_tasks_must_classify_the_same_texts() -> None:
    single, pair = ("classification", ("text",)), ("multi_label", ("question", "passage"))
    inputs._check_shared(context(a=single, b=("multi_label", ("body",))))
    inputs._check_shared(context(a=pair, b=pair))
    with pytest.raises(ConfigError, match=r"^student.heads: got shared; must be own for tasks with one text \(a\) and"):
        inputs._check_shared(context(a=single, b=pair))
    with pytest.raises(ConfigError, match=r"must be own for token_classification, the kind of b; leave the task out"):
        inputs._check_shared(context(a=single, b=("token_classification", ("tokens",))))
