"""A stage on pairs of segments needs a tokenizer that separates them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import processors

from distill.config import Term, Train, load_config
from distill.pipeline import validation
from distill.pipeline.validation.models import Model, Models, _unfit_for_corpus
from tests import tiny


@pytest.mark.parametrize("separated", [True, False])
@pytest.mark.parametrize("features", ["sentence_order", "logits"])
def test_a_tokenizer_that_separates_nothing_is_refused(features: str, separated: bool) -> None:
    words = tiny.tokenizer()
    if not separated:
        words.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B")
    terms = {"x": Term(features=features, compare_with="labels")}
    step: Any = SimpleNamespace(tokenizer=None, settings=Train(data="corpus", terms=terms))
    given = Models("teacher.name", [Model("", tiny.config("bert"), words)], None, None)
    found = [*map(str, _unfit_for_corpus(given, step))]
    line = (
        "teacher.name: got a tokenizer (or student.tokenizer) without a special token between the texts of a pair; "
        "must have one for a term on sentence_order; choose an encoder's, or leave the term out"
    )
    assert found == ([] if separated or features == "logits" else [line])


@pytest.mark.parametrize("controls", [["pretrain_baseline"], []])
def test_a_baseline_reads_the_pairs_that_its_student_reads(controls: list[str]) -> None:
    words = [f"+term@stages.{stage}.terms.order=sentence_order" for stage in ("pretrain", *controls)]
    found = validation.settings(load_config(["recipe=distilbert", *words]), "distilbert")
    line = (
        "stages.pretrain_baseline.terms: got none on segments; must have a term on sentence_order, as its student, so "
        "that both read the same texts; add +term@stages.pretrain_baseline.terms.order=sentence_order"
    )
    assert [*map(str, found)] == ([] if controls else [line])
