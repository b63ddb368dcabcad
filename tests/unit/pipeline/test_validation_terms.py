"""Invalid terms are refused, and the records of their kinds agree with the code that uses them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from omegaconf import OmegaConf

from distill.config import Term, Train
from distill.config.feature_kinds import FEATURE_KINDS
from distill.data.segments import CHANGES
from distill.losses.feature_rows import ROWS
from distill.models.hooks import Features
from distill.pipeline.validation.terms import TermFacts, terms

FITS = Term(features="hidden", positions="all")
PAIRS = {"features": "next_sentence", "compare_with": "labels"}
PLAIN = TermFacts()
OWN, SEVERAL, WINDOWS, PRUNED, STATIC, SOFT = (TermFacts(**{f.name: True}) for f in fields(TermFacts))


def problems(term: Term, data: str = "corpus", facts: TermFacts = PLAIN) -> list[str]:
    generator = "g" if (term.features, data, term.weight > 0) == ("replaced", "corpus", True) else None
    return [*map(str, terms("stages.s", Train(data=data, teacher="t", generator=generator, terms={"x": term}), facts))]


def test_every_kind_that_compares_layers_has_a_function_for_its_rows() -> None:
    assert ROWS.keys() == {kind.name for kind in FEATURE_KINDS.values() if kind.inside}
    known = {f.name for f in fields(Features)}
    for kind in FEATURE_KINDS.values():
        assert kind.compares
        assert set(kind.fields) <= known
        assert set(kind.rows) <= {"masked", "all"}
        assert kind.inside or not (kind.layers or kind.projected or kind.by_head)
        assert kind.task_rows or kind.rows
    assert CHANGES.keys() == {kind.name for kind in FEATURE_KINDS.values() if kind.segments}


@pytest.mark.parametrize("features", FEATURE_KINDS)
@pytest.mark.parametrize("data", ["corpus", "tasks"])
def test_every_kind_is_valid_in_a_plain_stage(features: str, data: str) -> None:
    kind = FEATURE_KINDS[features]
    positions = "masked" if "masked" in kind.rows and not kind.taught else "all"
    compared = "teacher" if kind.taught else "labels"
    found = problems(Term(features=features, positions=positions, layers="last", compare_with=compared), data)
    assert bool(found) == (not (kind.rows if data == "corpus" else kind.task_rows))


CASES: list[tuple[dict[str, Any], str, TermFacts, str]] = [
    ({"compare_with": "labels"}, "corpus", PLAIN, "compare_with: got labels; must be teacher with features hidden; "),
    (
        {"features": "span_boundary", "positions": "masked"},
        "corpus",
        PLAIN,
        "compare_with: got teacher; must be labels with features span_boundary; set stages.s.terms.x.comp",
    ),
    (
        {"features": "span_boundary", "positions": "all", "compare_with": "labels"},
        "corpus",
        PLAIN,
        "positions: got all; must be masked with labels; ",
    ),
    (
        {"features": "span_boundary", "positions": "masked", "compare_with": "labels"},
        "tasks",
        PLAIN,
        "features: got span_boundary; must be of a stage on a corpus; drop the term with ~stages.s.terms.x",
    ),
    ({"features": "margins"}, "corpus", PLAIN, "features: got margins; must be of a stage on tasks; drop the term"),
    ({"features": "replaced"}, "tasks", PLAIN, "features: got replaced; must be of a stage on a corpus; drop the term"),
    ({"features": "replaced"}, "corpus", OWN, "features: got replaced; must be hidden or first or pooled where the "),
    (
        {"features": "margins", "compare_with": "labels"},
        "tasks",
        PLAIN,
        "compare_with: got labels; must be teacher with ",
    ),
    ({"features": "pooled", "positions": "masked"}, "corpus", PLAIN, "positions: got masked; must be all with "),
    (
        {"features": "vectors", "positions": "all"},
        "corpus",
        PLAIN,
        "features: got vectors; must be of a stage on tasks; drop the term",
    ),
    (
        {"features": "vectors", "compare_with": "labels"},
        "tasks",
        PLAIN,
        "compare_with: got labels; must be teacher with ",
    ),
    ({"positions": "masked"}, "corpus", OWN, "positions: got masked; must be all where the student has a "),
    (
        {"positions": "masked"},
        "corpus",
        PLAIN,
        "positions: got masked; must be all in a stage that masks no tokens, because ",
    ),
    ({"features": "relations"}, "corpus", OWN, "features: got relations; must be hidden or first or pooled where the "),
    ({"features": "logits"}, "corpus", OWN, "features: got logits; must be hidden or first or pooled where the "),
    ({"features": "scores"}, "tasks", OWN, "features: got scores; must be logits on tasks where the student has a "),
    ({}, "corpus", STATIC, "features: got hidden; must be pooled with student.init=static, whose student has no l"),
    ({}, "tasks", STATIC, "features: got hidden; must be logits or vectors with student.init=static, whose student"),
    ({}, "tasks", WINDOWS, "features: got hidden; must be logits on tasks with teacher.window; drop the term with "),
    ({"features": "scores"}, "tasks", PRUNED, "features: got scores; must not need all of the teacher's heads after"),
    ({"features": "relations"}, "tasks", PRUNED, "features: got relations; must not need all of the teacher's heads"),
    ({"features": "pooled"}, "corpus", SEVERAL, "features: got pooled; must be logits with teacher=ensemble, whose "),
    (PAIRS, "tasks", PLAIN, "features: got next_sentence; must be of a stage on a corpus; drop the term with ~sta"),
    (PAIRS, "corpus", OWN, "features: got next_sentence; must be left out where the student has a tokenizer of its"),
    (PAIRS, "corpus", STATIC, "features: got next_sentence; must be left out with student.init=static, whose first "),
    (PAIRS | {"compare_with": "teacher"}, "corpus", PLAIN, "compare_with: got teacher; must be labels with features "),
    (PAIRS | {"positions": "masked"}, "corpus", PLAIN, "positions: got masked; must be all with features next_sen"),
    (PAIRS | {"layers": "uniform"}, "corpus", PLAIN, "layers: got uniform; must be last with features next_sen"),
    (PAIRS | {"teacher_layer": 1}, "corpus", PLAIN, "teacher_layer: got 1; must be left out with features next_sen"),
    (PAIRS | {"heads": 4}, "corpus", PLAIN, "heads: got 4; must be left out with features next_sentence; "),
    ({"heads": 4}, "corpus", PLAIN, "heads: got 4; must be left out with features hidden; leave it out"),
    ({"features": "scores", "heads": 4}, "tasks", PLAIN, "heads: got 4; must be left out with features scores; "),
    ({"features": "logits", "teacher_layer": 1}, "tasks", PLAIN, "teacher_layer: got 1; must be left out with fea"),
    ({"layers": "uniform", "features": "pooled"}, "tasks", PLAIN, "layers: got uniform; must be last with feat"),
    ({"layers": [[0, 1]], "features": "logits"}, "tasks", PLAIN, "layers: got [[0, 1]]; must be last with feat"),
    ({"layers": [[-1, -1]], "features": "first"}, "tasks", PLAIN, "layers: got [[-1, -1]]; must be last, uniform"),
    ({"layers": "uniform", "teacher_layer": 2}, "corpus", PLAIN, "teacher_layer: got 2; must be left out with laye"),
    *(
        ({"layers": layers}, "corpus", PLAIN, f"layers: got {layers}; must be last, uniform or pairs [student's ")
        for layers in ("all", None, 2, [], [0, 1], [[0]], [[0, 1, 2]], [[0, -2]], [[0, True]], [[0, "1"]], [["last"]])
    ),
]


@pytest.mark.parametrize(("changes", "data", "facts", "message"), CASES, ids=str)
def test_invalid_terms_are_refused(changes: dict[str, Any], data: str, facts: TermFacts, message: str) -> None:
    (line,) = problems(replace(FITS, **changes), data, facts)
    assert line.startswith(f"stages.s.terms.x.{message}")
    assert problems(replace(FITS, weight=0.0, **changes), data, facts) == [
        "stages.s.terms: got none with a weight; must be at least one; e.g. +term@stages.s.terms.mlm=mlm"
    ]


@pytest.mark.parametrize(
    ("changes", "data", "facts"),
    [
        ({}, "corpus", OWN),
        ({"features": "pooled"}, "corpus", OWN),
        ({"features": "logits", "compare_with": "labels", "positions": "masked"}, "corpus", OWN),
        ({"features": "logits"}, "tasks", OWN),
        ({"features": "pooled"}, "corpus", STATIC),
        ({"features": "logits"}, "tasks", STATIC),
        ({"features": "logits"}, "tasks", WINDOWS),
        ({}, "corpus", WINDOWS),
        ({"features": "relations", "heads": 2}, "tasks", PRUNED),
        ({"features": "scores"}, "corpus", PRUNED),
        ({"features": "logits"}, "corpus", SEVERAL),
        ({"layers": "uniform"}, "tasks", PLAIN),
        ({"positions": "masked"}, "tasks", PLAIN),  # a setting of stages on a corpus
        ({"layers": [[0, 1], [1, 3]]}, "tasks", PLAIN),
        ({"layers": [[-1, -1], [0, 2]]}, "tasks", PLAIN),
        ({"teacher_layer": 2}, "tasks", PLAIN),
        ({"features": "attention"}, "tasks", PLAIN),  # refused by the rule of that setting
    ],
    ids=str,
)
def test_valid_terms_are_accepted(changes: dict[str, Any], data: str, facts: TermFacts) -> None:
    assert problems(replace(FITS, **changes), data, facts) == []


def test_a_term_on_logits_masks_tokens_for_the_others() -> None:
    both = {"x": replace(FITS, positions="masked"), "y": Term(compare_with="labels")}
    assert [*terms("stages.s", Train(data="corpus", teacher="t", terms=both), PLAIN)] == []
    both["y"] = replace(both["y"], weight=0.0)
    (line,) = map(str, terms("stages.s", Train(data="corpus", teacher="t", terms=both), PLAIN))
    assert line.startswith("stages.s.terms.x.positions: got masked; must be all in a stage that masks no tokens")


def test_texts_become_pairs_for_one_term_alone() -> None:
    other = {"y": replace(FITS, features="sentence_order", compare_with="labels")}
    both = {"x": replace(FITS, **PAIRS)} | other
    (line,) = map(str, terms("stages.s", Train(data="corpus", terms=both), PLAIN))
    assert line == (
        "stages.s.terms.y.weight: got 1.0; must be 0 beside stages.s.terms.x, because a text becomes pairs for one of "
        "them; drop one of the terms, e.g. with ~stages.s.terms.y"
    )
    both["x"] = replace(both["x"], weight=0.0)
    assert [*terms("stages.s", Train(data="corpus", terms=both), PLAIN)] == []
    assert Train(data="corpus", terms=both).segments == "sentence_order"
    assert Train(data="corpus", terms={"x": FITS}).segments is None


def test_pairs_of_layers_survive_hydra() -> None:
    composed = OmegaConf.merge(OmegaConf.structured(Term), {"loss": {}, "layers": [[0, 1], [1, 3]]})
    term = OmegaConf.to_object(composed)
    assert isinstance(term, Term)
    assert problems(replace(term, features="hidden", positions="all")) == []
