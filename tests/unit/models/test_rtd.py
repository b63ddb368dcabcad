"""The head for replaced-token detection: loaded, kept by students, new where there is none, and saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForPreTraining, AutoModelForSequenceClassification, ElectraForPreTraining

from distill.models import families, student, teacher
from distill.models.families.head import stores_rtd_head
from distill.models.hooks import capture
from tests import tiny


def test_its_logits_are_the_models_own(tiny_model: Callable[..., Any], tiny_batch: dict[str, Tensor]) -> None:
    model = tiny_model("electra", "PreTraining")
    assert families.has_rtd_head(model)
    assert not families.has_mlm_head(model)
    inputs = families.inputs(model, tiny_batch)
    logits = families.rtd_logits(model, families.encode(model, inputs))
    assert torch.equal(logits[..., 0], torch.zeros(2, 7))
    torch.testing.assert_close(logits[..., 1], model(**inputs).logits)
    torch.testing.assert_close(logits.softmax(-1)[..., 1], model(**inputs).logits.sigmoid())
    assert capture(model, tiny_batch, {"hidden": [0]}).logits is None  # its head does not run on every token


def test_a_head_that_is_stored_is_loaded_and_another_is_new(tmp_path: Path) -> None:
    for folder, head, stored in (("found", "PreTraining", True), ("words", "MaskedLM", False), ("bare", "", False)):
        tiny.save(tmp_path / folder, "electra", head)
        assert stores_rtd_head(tmp_path / folder) is stored
        torch.manual_seed(0)
        model, has_head = teacher.load_rtd(tmp_path / folder)
        assert (type(model), has_head) == (ElectraForPreTraining, stored)
    tiny.save(tmp_path / "bert", "bert", "MaskedLM")
    model, has_head = teacher.load_rtd(tmp_path / "bert")
    assert (families.has_mlm_head(model), has_head, stores_rtd_head(tmp_path / "bert")) == (True, False, False)


@pytest.mark.parametrize(
    ("embedding", "sizes"),
    [(8, {}), (8, {"hidden_size": 16}), (32, {}), (32, {"hidden_size": 16}), (32, {"embedding_size": 8})],
    ids=str,
)
def test_a_student_starts_from_its_teachers_head(
    embedding: int, sizes: dict[str, int], tiny_model: Callable[..., Any]
) -> None:
    model = tiny_model("electra", "PreTraining", hidden_size=32, num_attention_heads=4, embedding_size=embedding)
    made = student.from_teacher(model, [0, 2], init="teacher_layers", seed=0, sizes=sizes)
    assert type(made) is ElectraForPreTraining
    for name, theirs in model.discriminator_predictions.named_parameters():
        ours = made.discriminator_predictions.get_parameter(name)
        assert torch.isin(ours, theirs).all()
        assert "hidden_size" in sizes or torch.equal(ours, theirs)


def test_a_model_without_one_gets_a_new_one_and_keeps_its_encoder(
    tiny_model: Callable[..., Any], tiny_batch: dict[str, Tensor], tmp_path: Path
) -> None:
    model = tiny_model("electra", "MaskedLM")
    made, again, other = (student.with_rtd_head(model, seed) for seed in (1, 1, 2))
    torch.testing.assert_close(families.encode(made.eval(), tiny_batch), families.encode(model, tiny_batch))
    head = made.discriminator_predictions.dense.weight
    assert torch.equal(head, again.discriminator_predictions.dense.weight)
    assert not torch.equal(head, other.discriminator_predictions.dense.weight)
    assert student.with_rtd_head(made, 5) is made
    made.save_pretrained(tmp_path)
    for auto in (ElectraForPreTraining, AutoModelForPreTraining):
        loaded, info = auto.from_pretrained(tmp_path, output_loading_info=True)
        assert not info["missing_keys"]
        assert not info["unexpected_keys"]
        assert type(loaded) is ElectraForPreTraining
        assert torch.equal(loaded.discriminator_predictions.dense.weight, head)
    classifier = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    torch.testing.assert_close(families.encode(classifier.eval(), tiny_batch), families.encode(model, tiny_batch))
