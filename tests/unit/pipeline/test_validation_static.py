"""What a static student cannot learn, or be, is refused with the setting and the reason."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import BertConfig, PreTrainedTokenizerFast

from distill.config import Prune, Student, load_config
from distill.config.plan import STUDENT, TEACHER, resolve
from distill.errors import ConfigError
from distill.models import student
from distill.pipeline import validation
from distill.pipeline.validation import models
from distill.pipeline.validation.models import Model, Models

SPECIAL: Any = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(WordLevel({"[PAD]": 0, "[UNK]": 1, "a": 2}, unk_token="[UNK]")),
    pad_token="[PAD]",
    unk_token="[UNK]",
)
"""A tokenizer without a mask token."""


def problems(*settings: str, recipe: str = "static") -> list[str]:
    return validation.settings(load_config([f"recipe={recipe}", *settings]), recipe)


def test_the_recipe_passes() -> None:
    assert problems() == []
    assert problems("student.hidden_size=64", "student.tokenizer=FOLDER") == []


def test_on_tasks_the_message_names_what_fits_there() -> None:
    found = problems("+term@stages.finetune.terms.more=relations")
    wanted = "must be logits or vectors with student.init=static, whose student has no layers"
    assert len([line for line in found if wanted in line]) == len([line for line in found if "more.features" in line])
    assert any(line.startswith("stages.finetune.terms.more.features: got relations; ") for line in found)


def test_of_terms_on_vocabularies_it_names_pooled_alone() -> None:
    found = problems("+term@stages.pretrain.terms.more=soft_targets")
    assert any("got logits; must be pooled where the student has a tokenizer of its own" in line for line in found)


@pytest.mark.parametrize(
    "term", ["hidden", *(pytest.param(term, marks=pytest.mark.slow) for term in ("mse", "relations"))]
)
def test_terms_of_its_teacher_are_not(term: str) -> None:
    setting = f"+term@stages.finetune_teacher.terms.more={term}"
    found = problems(setting)
    assert found == problems(setting, recipe="distilbert")
    assert not any("no layers" in line for line in found)


def test_only_the_student_has_its_own_tokenizer() -> None:
    steps = {step.stage: step.tokenizer for step in resolve(load_config(["recipe=static"])).steps}
    assert steps["pretrain"] is steps["finetune"] is steps["finetune_baseline"] is STUDENT
    assert steps["finetune_teacher"] is TEACHER


def given(config: Any, tokenizer: Any = None) -> Models:
    return Models("teacher.name", [Model("", config, tokenizer)], None, tokenizer)


def static_config() -> Any:
    return student.static_config(BertConfig(hidden_size=16), SPECIAL, {"hidden_size": None})


@pytest.mark.parametrize("init", ["teacher_layers", "random", "static"])
def test_no_student_is_built_from_a_static_teacher(init: str) -> None:
    with pytest.raises(ConfigError, match=r"teacher\.name: got a static model, which has no layers; must have layers"):
        models.built(given(static_config()), Student(init=init))


def test_a_static_teacher_is_not_pruned() -> None:
    config = load_config(["recipe=prune"])
    plan = resolve(config)
    (line, *_) = models.problems(given(static_config(), SPECIAL), config, plan, plan.of(Prune), None)
    assert str(line).startswith("teacher.name: got a static model, which has no layers; must have layers")


@pytest.mark.parametrize("recipe", ["static", "distilbert"])
def test_a_mask_token_is_needed_where_tokens_are_masked(recipe: str) -> None:
    config = load_config([f"recipe={recipe}"])
    plan = resolve(config)
    bert = BertConfig(hidden_size=16, num_attention_heads=2, num_hidden_layers=2, vocab_size=len(SPECIAL))
    found = models.problems(given(bert, SPECIAL), config, plan, [s for s in plan.steps if s.stage == "pretrain"], None)
    assert any("without a mask token" in str(line) for line in found) == (recipe == "distilbert")
