"""What stages with folds are refused before anything is loaded."""

from __future__ import annotations

import pytest

from distill.config import load_config
from distill.pipeline import validation


def problems(recipe: str, *settings: str) -> list[str]:
    return validation.settings(load_config([f"recipe={recipe}", *settings]), recipe)


@pytest.mark.parametrize("recipe", ["distilbert", "prune", "prune_general", "auto", "vocabulary"])
def test_a_stage_that_fine_tunes_the_teacher_of_a_student_is_accepted(recipe: str) -> None:
    more = ["teacher.name=someone/model", "tasks=glue"] if recipe == "auto" else []
    folds = "stages.finetune_teacher.folds=5"
    assert problems(recipe, *more, folds) == problems(recipe, *more)


def test_a_student_with_one_encoder_for_all_tasks_is_accepted() -> None:
    shared = ["student.heads=shared", "stages.quantize.schemes=[onnxruntime]", "tasks.names=[package,corrupted]"]
    assert problems("distilbert", *shared, "stages.finetune_teacher.folds=5") == []


FOLDS = "stages.finetune_teacher.folds: got 5; must be 1 "


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            ["stages.finetune.folds=5"],
            "stages.finetune.folds: got 5; must be 1 in a stage that fine-tunes no teacher on tasks; set it in the "
            "stage that does",
        ),
        (
            ["stages.finetune_teacher.folds=0"],
            "stages.finetune_teacher.folds: got 0; must be >= 1; 1 trains no further ",
        ),
        (
            ["stages.finetune_teacher.folds=5", "teacher=ensemble", "teacher.names=[a/b,c/d]"],
            f"{FOLDS}with teacher=ensemble; give one teacher, or leave it out",
        ),
        (
            ["stages.finetune_teacher.folds=5", "teacher=none", "student.name=someone/model"],
            f"{FOLDS}with teacher=none, where a student learns from soft labels; leave it out",
        ),
        (
            ["stages.finetune_teacher.folds=5", "stages.finetune_teacher.teacher=teacher"],
            f"{FOLDS}in a stage with a teacher of its own; leave it out, or set stages.finetune_teacher.teacher=null",
        ),
        (
            ["stages.finetune_teacher.folds=5", "pipeline=[finetune_teacher]"],
            f"{FOLDS}where no stage has finetune_teacher as its teacher; leave it out, or set stages.STAGE.teacher",
        ),
    ],
)
def test_other_stages_with_folds_are_refused(settings: list[str], expected: str) -> None:
    recipe = "task" if "pipeline=[finetune_teacher]" not in settings else "prune"
    found = [line for line in problems(recipe, *settings) if ".folds" in line]
    assert len(found) == 1
    assert found[0].startswith(expected)
