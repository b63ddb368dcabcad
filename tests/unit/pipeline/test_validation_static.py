"""What a static student cannot learn, or be, is refused with the setting and the reason."""

from __future__ import annotations

import pytest

from distill.config import load_config
from distill.config.plan import STUDENT, TEACHER, resolve
from distill.pipeline import validation


def problems(*settings: str, recipe: str = "static") -> list[str]:
    return validation.settings(load_config([f"recipe={recipe}", *settings]), recipe)


def test_the_recipe_passes() -> None:
    assert problems() == []
    assert problems("student.hidden_size=64", "student.tokenizer=FOLDER") == []


@pytest.mark.parametrize("term", ["hidden", "relations", "attention"])
def test_terms_on_layers_are_refused(term: str) -> None:
    name = {"attention": "scores"}.get(term, term)
    (line, *_) = (
        line
        for line in problems(f"+term@stages.pretrain.terms.more={term}")
        if "student.init=static, whose student has no layers" in line
    )
    assert line.startswith(f"stages.pretrain.terms.more.features: got {name}; must be logits, pooled or vectors")


def test_terms_of_its_teacher_are_not() -> None:
    assert problems("+term@stages.finetune_teacher.terms.more=mse") == problems(
        "+term@stages.finetune_teacher.terms.more=mse", recipe="distilbert"
    )


@pytest.mark.parametrize("name", ["layers=[0]", "num_hidden_layers=2", "family=bert", "intermediate_size=8"])
def test_sizes_of_layers_are_refused(name: str) -> None:
    key = name.partition("=")[0]
    wanted = "; must be null with student.init=static, which has no layers; leave it out"
    assert any(
        line.startswith(f"student.{key}: got ") and line.endswith(wanted) for line in problems(f"student.{name}")
    )


def test_only_the_student_has_its_own_tokenizer() -> None:
    steps = {step.stage: step.tokenizer for step in resolve(load_config(["recipe=static"])).steps}
    assert steps["pretrain"] is steps["finetune"] is steps["finetune_baseline"] is STUDENT
    assert steps["finetune_teacher"] is TEACHER
