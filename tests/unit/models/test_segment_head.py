"""The head for pairs of segments, against the classes for pretraining of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from distill import losses
from distill.data.task_types import MISSING
from distill.errors import ConfigError
from distill.losses.distillation_loss import DistillationLoss
from distill.losses.objective import Objective
from distill.losses.terms import Term
from distill.models import families, teacher
from distill.models.segment_head import SegmentHead, segment_head, tensors
from distill.models.write import write_model
from tests import tiny

LABEL = {"bert": "next_sentence_label", "ernie": "next_sentence_label", "albert": "sentence_order_label"}
KIND = {"bert": "next_sentence", "ernie": "next_sentence", "albert": "sentence_order"}


def term(kind: str, weight: float = 1.0) -> Term:
    return Term(weight, kind, "labels", "all", losses.supervised)


@pytest.fixture
def batch(tiny_batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Two rows, both pairs, with two masked tokens."""
    real = tiny_batch["attention_mask"].flatten().nonzero().squeeze(1)
    masked = {"masked": torch.tensor([1, 9]), "labels": torch.tensor([11, 7]), "real": real}
    return tiny_batch | masked | {"pairs": torch.tensor([0, 1]), "pair_labels": torch.tensor([1, 0])}


@pytest.fixture
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Path]:
    """A model for pretraining in float64, and its folder."""
    model = tiny.model(request.param, "PreTraining", std=0.3, num_labels=2)
    model.save_pretrained(tmp_path / "whole")
    tiny.tokenizer().save_pretrained(tmp_path / "whole")
    return model.double(), tmp_path / "whole"


@pytest.mark.parametrize("whole", LABEL, indirect=True)
def test_the_loss_is_that_of_transformers(whole: tuple[Any, Path], batch: dict[str, Tensor]) -> None:
    expected, folder = whole
    family = expected.config.model_type
    model = teacher.load_mlm(folder)[0].double()
    head = segment_head(model, [folder]).double()
    terms = {"mlm": Term(1.0, "logits", "labels", "masked", losses.mlm), "pairs": term(KIND[family])}
    objective = Objective(model, terms, segment_head=head).eval()
    sums = objective(batch)
    labels = torch.full_like(batch["input_ids"], MISSING)
    labels.view(-1)[batch["masked"]] = batch["labels"]
    out = expected(**families.inputs(model, batch), labels=labels, **{LABEL[family]: batch["pair_labels"]})
    assert objective.counts(batch).tolist() == [2, 2]
    torch.testing.assert_close(sums.double().sum() / 2, out.loss, rtol=1e-6, atol=1e-6)
    out.loss.backward()
    (sums.sum() / 2).backward()
    theirs = dict(expected.named_parameters())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, theirs[name].grad, rtol=1e-6, atol=1e-7)
    for name, value in zip(tensors(head, model), head.parameters(), strict=True):
        torch.testing.assert_close(value.grad, theirs[name].grad, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("whole", LABEL, indirect=True)
def test_a_saved_head_is_part_of_the_class_for_pretraining(whole: tuple[Any, Path], tmp_path: Path) -> None:
    """And a plain language model loads without it."""
    model = teacher.load_mlm(whole[1])[0]
    head = SegmentHead(families.width(model), 0.3)
    with write_model(tmp_path / "student", model, tiny.tokenizer(), more=tensors(head, model)):
        pass
    loaded, info = transformers.AutoModelForPreTraining.from_pretrained(tmp_path / "student", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    ids = {"input_ids": torch.arange(5, 13)[None]}
    hidden = loaded.base_model(**ids).last_hidden_state
    scores = loaded(**ids)
    logits = scores.sop_logits if hasattr(scores, "sop_logits") else scores.seq_relationship_logits
    torch.testing.assert_close(head(hidden[:, 0]), logits)
    again, had_head = teacher.load_mlm(tmp_path / "student")
    assert had_head
    torch.testing.assert_close(again(**ids).logits, model(**ids).logits)
    found = segment_head(again, [whole[1], tmp_path / "student"])
    assert all(torch.equal(value, found.get_parameter(name)) for name, value in head.named_parameters())
    # A classifier on it starts from its pooler.
    pooler = dict(teacher.load_classifier(tmp_path / "student", 3, whole[1]).named_parameters())
    name = next(name for name in tensors(head, model) if "pooler" in name and name.endswith("weight"))
    assert torch.equal(pooler[name], head.pooler.weight)


def test_a_head_of_another_width_or_family_is_new(tmp_path: Path) -> None:
    tiny.save(tmp_path / "bert", "bert", "PreTraining")
    narrow = tiny.model("bert", "MaskedLM", hidden_size=8)
    torch.manual_seed(0)
    expected = SegmentHead(8, 0.02)
    torch.manual_seed(0)
    found = segment_head(narrow, [tmp_path / "bert"])
    assert all(torch.equal(value, found.get_parameter(name)) for name, value in expected.named_parameters())
    roberta = tiny.model("roberta", "MaskedLM")
    assert tensors(segment_head(roberta, [tmp_path / "bert"]), roberta) == {}


def test_a_pooler_of_an_encoder_alone_is_used(tmp_path: Path) -> None:
    tiny.save(tmp_path / "encoder", "bert", "")
    encoder = transformers.AutoModel.from_pretrained(tmp_path / "encoder")
    found = segment_head(tiny.model("bert", "MaskedLM"), [tmp_path / "encoder"])
    assert torch.equal(found.pooler.weight, encoder.pooler.dense.weight)


def test_a_loss_on_batches_of_a_collator_has_no_pairs(tiny_model) -> None:
    with pytest.raises(ConfigError, match="terms: got sentence_order; must be of a stage on a corpus; leave it out"):
        DistillationLoss(tiny_model("bert"), None, {"pairs": term("sentence_order")})


def test_a_batch_without_pairs_trains_nothing_of_the_head(tiny_model, batch: dict[str, Tensor]) -> None:
    """But its parameters have a gradient, for which data parallelism waits."""
    none = torch.zeros(0, dtype=torch.int64)
    model = tiny_model("bert")
    head = SegmentHead(16, 0.02)
    objective = Objective(model, {"pairs": term("next_sentence")}, segment_head=head)
    sums = objective(batch | {"pairs": none, "pair_labels": none})
    sums.sum().backward()
    assert sums.tolist() == [0]
    assert all(p.grad is not None and not p.grad.any() for p in head.parameters())
