"""Settings of masking: what they do to the batches of a stage, and tokenizers that they refuse."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models
from transformers import BertConfig, PreTrainedTokenizerFast

from distill.config import load_config
from distill.config.plan import resolve
from distill.data.encode import encode_texts
from distill.pipeline import validation
from distill.pipeline.train_steps.corpus import _collate
from distill.pipeline.validation.models import Model, Models, problems
from tests.tiny import tokenizer

TEXTS = [f"the film was {word} and unseen xylophones played zigzags all along" for word in ("awful", "odd", "good")]


def batches(*settings: str, recipe: str = "distilbert") -> list[dict[str, Any]]:
    """The batches of two epochs of the same rows."""
    own: Any = tokenizer()
    stage: Any = load_config([f"recipe={recipe}", *(f"stages.pretrain.{each}" for each in settings)]).stages["pretrain"]
    inputs: Any = SimpleNamespace(tokenizer=own, given_tokenizer=own)
    model: Any = SimpleNamespace(config=SimpleNamespace(vocab_size=len(own)))
    collate = _collate(inputs, stage, encode_texts([TEXTS], own, 64), model, seed=7)
    return [dict(collate(np.arange(len(TEXTS)), epoch)) for epoch in (0, 1)]


def test_fixed_masks_are_the_same_in_every_epoch_and_others_are_not() -> None:
    first, second = batches()
    assert first["masked"].tolist() != second["masked"].tolist()
    fixed, again = batches("masking.fixed=true")
    assert all((fixed[name] == again[name]).all() for name in fixed)
    assert all((fixed[name] == first[name]).all() for name in fixed)


def test_words_of_a_batch_are_masked_whole() -> None:
    own: Any = tokenizer()
    lonely = 0
    for unit in ("token", "word"):
        for batch in batches(f"masking.unit={unit}", "masking.probability=0.4"):
            flags = np.zeros(batch["input_ids"].size, bool)
            flags[batch["masked"]] = True
            flags = flags.reshape(batch["input_ids"].shape)
            for text, row in zip(TEXTS, flags, strict=True):
                numbers = np.array([-1 if word is None else word for word in own(text).word_ids()])
                shares = [row[: len(numbers)][numbers == word].mean() for word in range(numbers.max() + 1)]
                whole = all(share in (0, 1) for share in shares)
                assert whole or unit == "token"
                lonely += not whole
    assert lonely


def test_without_masks_a_unit_is_not_looked_for() -> None:
    batch, _ = batches("terms.mlm.weight=0", "terms.soft_targets.weight=0", "masking.unit=span")
    assert batch["masked"].size == 0


def test_a_unit_is_allowed_where_a_baseline_alone_is_masked() -> None:
    for recipe in ("tinybert", "embedder"):
        given = [f"recipe={recipe}", "stages.pretrain.masking.unit=word", "stages.pretrain.masking.fixed=true"]
        assert validation.settings(load_config(given), recipe) == []


@pytest.mark.parametrize(("unit", "refused"), [("token", False), ("word", True), ("span", True)])
def test_a_vocabulary_without_marks_of_words_is_refused(unit: str, refused: bool) -> None:
    backend = Tokenizer(models.BPE({"<mask>": 0, "<pad>": 1, "a": 2}, []))
    own: Any = PreTrainedTokenizerFast(tokenizer_object=backend, mask_token="<mask>", pad_token="<pad>")
    bert = BertConfig(hidden_size=16, num_attention_heads=2, num_hidden_layers=2, vocab_size=len(own))
    config = load_config(["recipe=distilbert", f"stages.pretrain.masking.unit={unit}"])
    plan = resolve(config)
    given = Models("teacher.name", [Model("", bert, own)], None, own)
    found = problems(given, config, plan, [step for step in plan.steps if step.stage == "pretrain"], None)
    wanted = (
        "teacher.name: got a tokenizer (or student.tokenizer) whose vocabulary does not mark where words begin; must "
        f"have such marks for masking.unit={unit}; set stages.STAGE.masking.unit=token"
    )
    assert (wanted in map(str, found)) == refused
