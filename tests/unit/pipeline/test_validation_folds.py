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
