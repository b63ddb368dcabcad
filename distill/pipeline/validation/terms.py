"""Checks of the terms of a train stage against its data, its teacher and its student."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from distill.config import Term, Train
from distill.config.baselines import BASELINE
from distill.config.feature_kinds import BATCH_LOSSES, FEATURE_KINDS, LOGITS, REPLACED, SPAN_BOUNDARY, FeatureKind
from distill.errors import Line, Problem


@dataclass(frozen=True)
class TermFacts:
    """Facts about a stage's models that its terms depend on, beyond the stage's own settings."""

    own_tokens: bool = False
    """Whether student and teacher have different tokenizers."""
    several_teachers: bool = False
    """Whether the teacher is an ensemble."""
    windows: bool = False
    """Whether the teacher reads long texts in windows."""
    pruned: bool = False
    """Whether the student was pruned, so that it may have fewer heads than its teacher."""
    static: bool = False
    """Whether the student has no layers."""
    soft_labels: bool = False
    """Whether soft labels stand in for the stage's teacher."""


def terms(key: str, stage: Train, facts: TermFacts) -> Iterator[Line]:
    """All problems of the terms of a stage, one line each. `key` is the key of the stage's settings."""
    weighted = {label: term for label, term in stage.terms.items() if term.weight > 0}
    if not weighted:
        yield Problem(f"{key}.terms", "none with a weight", "be at least one", f"e.g. +term@{key}.terms.mlm=mlm")
    yield from _replaced(key, weighted, stage)
    yield from _one_of_pairs(key, weighted)
    for label, term in weighted.items():
        # An unknown kind is refused by the rule of `features`.
        if (kind := FEATURE_KINDS.get(term.features)) is None:
            continue
        where = f"{key}.terms.{label}"
        if kind.segments:
            yield from _of_pairs(where, term, kind, stage, facts)
            yield from _of_batch(where, key, term, kind, stage)
            continue
        yield from _compared(where, key, term, kind, stage, facts)
        yield from _positions(where, term, kind, stage, facts)
        yield from _layers(where, term, kind)
        yield from _unused(where, term, kind)
        yield from _of_batch(where, key, term, kind, stage)
        if facts.static and kind.layers:
            others = "pooled" if stage.data == "corpus" else "logits or vectors"
            must = f"be {others} with student.init=static, whose student has no layers"
            yield Problem(f"{where}.features", kind.name, must, f"drop the term with ~{where}")
            continue
        if kind.inside and stage.data == "tasks":
            yield from _inside_on_tasks(where, term, kind, stage, facts)
        if term.compare_with == "teacher":
            yield from _teacher(where, term, kind, stage, facts)


def _replaced(key: str, weighted: Mapping[str, Term], stage: Train) -> Iterator[Line]:
    """Problems of terms on replaced tokens, which need a generator and a head of their own."""
    found = [label for label, term in weighted.items() if term.features == REPLACED.name]
    others = [label for label, term in weighted.items() if term.features in (LOGITS.name, SPAN_BOUNDARY.name)]
    where = f"{key}.generator"
    if not found and stage.generator is not None and stage.role != BASELINE:
        yield Problem(where, stage.generator, f"be left out without a term on {REPLACED.name}", "leave it out")
    if not found or stage.data == "tasks":
        return
    if stage.generator is None:
        must = f"be a stage whose language model replaces tokens for terms.{found[0]}"
        yield Problem(where, "null", must, f"e.g. {where}=adapt, or drop the term with ~{key}.terms.{found[0]}")
    if stage.skip_if_mlm_head:
        yield Problem(f"{key}.skip_if_mlm_head", "true", f"be false with terms.{found[0]}", "leave it out")
    for label in others:
        must = f"be {REPLACED.name}, as in terms.{found[0]}: a model has one head on a corpus"
        yield Problem(
            f"{key}.terms.{label}.features", weighted[label].features, must, f"set {key}.terms.{label}.weight=0"
        )


def compared_in_batch(term: Term) -> tuple[FeatureKind, ...]:
    """The kinds whose rows the loss of a term compares with each other; none for a loss of single rows."""
    return BATCH_LOSSES.get(str(term.loss.get("_target_")), ()) if isinstance(term.loss, Mapping) else ()


def _of_batch(where: str, key: str, term: Term, kind: FeatureKind, stage: Train) -> Iterator[Line]:
    """A loss that compares the rows of a step needs rows of its kind, and all of them at once."""
    if not (kinds := compared_in_batch(term)):
        return
    if kind not in kinds:
        must = f"be {' or '.join(each.name for each in kinds)} with the loss {term.loss['_target_'].rpartition('.')[2]}"
        yield Problem(f"{where}.features", kind.name, must, f"drop the term with ~{where}")
    elif not kind.inside and term.compare_with == "labels":
        must = "be teacher with a loss that compares rows with each other"
        yield Problem(f"{where}.compare_with", "labels", must, f"set {where}.compare_with=teacher")
    if (most := stage.batch.device_tokens) is not None:
        must = f"be left out with {where}, whose loss compares all rows of a step with each other"
        yield Problem(f"{key}.batch.device_tokens", most, must, f"leave it out, or drop the term with ~{where}")


def _one_of_pairs(key: str, weighted: Mapping[str, Term]) -> Iterator[Line]:
    """All terms of a stage are computed on the same texts, which are pairs of one kind."""
    kinds = {label: FEATURE_KINDS[t.features] for label, t in weighted.items() if t.features in FEATURE_KINDS}
    first, *others = [label for label, kind in kinds.items() if kind.segments] or [""]
    for label in others:
        yield Problem(
            f"{key}.terms.{label}.weight",
            weighted[label].weight,
            f"be 0 beside {key}.terms.{first}, because a text becomes pairs for one of them",
            f"drop one of the terms, e.g. with ~{key}.terms.{label}",
        )


def _of_pairs(where: str, term: Term, kind: FeatureKind, stage: Train, facts: TermFacts) -> Iterator[Line]:
    """Problems of a term on pairs of segments."""
    drop, name = f"drop the term with ~{where}", kind.name
    if stage.data != "corpus":
        yield Problem(f"{where}.features", name, "be of a stage on a corpus", drop)
        return
    wanted = {"compare_with": "labels", "positions": "all", "layers": "last", "teacher_layer": None, "heads": None}
    for setting, value in wanted.items():
        if (got := getattr(term, setting)) != value:
            shown = "left out" if value is None else value
            yield Problem(f"{where}.{setting}", got, f"be {shown} with features {name}", "leave it as in conf/term")
    if facts.own_tokens:
        reason = "where the student has a tokenizer of its own: segments would be other texts for its teacher"
        yield Problem(f"{where}.features", name, f"be left out {reason}", drop)
    if facts.static:
        reason = "with student.init=static, whose first token is the same in every text"
        yield Problem(f"{where}.features", name, f"be left out {reason}", drop)


def _compared(where: str, key: str, term: Term, kind: FeatureKind, stage: Train, facts: TermFacts) -> Iterator[Line]:
    taught = stage.teacher is not None or (facts.soft_labels and kind.head)
    if term.compare_with == "teacher" and not taught and stage.role != BASELINE:
        yield Problem(
            f"{where}.compare_with", "teacher", f"be labels where {key}.teacher is null", f"set {key}.teacher=STAGE"
        )
    if not kind.labels and term.compare_with == "labels" and stage.role == BASELINE:
        yield Problem(f"{where}.features", kind.name, "be logits in a baseline", f"drop the term with ~{where}")
    elif not kind.labels and term.compare_with == "labels":
        key = f"{where}.compare_with"
        yield Problem(key, "labels", f"be teacher with features {kind.name}", f"set {key}=teacher")
    elif not kind.taught and term.compare_with == "teacher":
        key = f"{where}.compare_with"
        yield Problem(key, "teacher", f"be labels with features {kind.name}", f"set {key}=labels")


def _positions(where: str, term: Term, kind: FeatureKind, stage: Train, facts: TermFacts) -> Iterator[Line]:
    reason = None
    for data, place, rows in (("corpus", "tasks", kind.rows), ("tasks", "a corpus", kind.task_rows)):
        if not rows and stage.data == data:
            yield Problem(f"{where}.features", kind.name, f"be of a stage on {place}", f"drop the term with ~{where}")
            return
    if stage.data == "tasks":
        return  # all rows are compared, whatever the setting
    if "masked" not in kind.rows:
        reason = f"with features {kind.name}"
    elif kind.own_tokens is not None and facts.own_tokens:
        reason = "where the student has a tokenizer of its own, because only the student's tokens are masked"
    elif not masks_tokens(stage):
        reason = "in a stage that masks no tokens, because no term is on logits"
    if reason and term.positions == "masked":
        yield Problem(f"{where}.positions", "masked", f"be all {reason}", f"set {where}.positions=all")
    if "masked" in kind.rows and not kind.inside and term.compare_with == "labels" and term.positions == "all":
        yield Problem(f"{where}.positions", "all", "be masked with labels", "only masked positions have a label")


def masks_tokens(stage: Train) -> bool:
    """Whether tokens of a corpus are masked in a stage."""
    kinds = (FEATURE_KINDS.get(term.features) for term in stage.terms.values() if term.weight > 0)
    return any(kind is not None and kind.head for kind in kinds)


def _layers(where: str, term: Term, kind: FeatureKind) -> Iterator[Line]:
    lowest = -1 if kind.embeddings else 0
    if not (term.layers in ("last", "uniform") or _are_pairs(term.layers, lowest)):
        yield Problem(
            f"{where}.layers",
            term.layers,
            "be last, uniform or pairs [student's layer, teacher's layer] counted from "
            + ("0, where -1 are the embeddings" if kind.embeddings else "0"),
            "e.g. [[0,1],[1,3]]",
        )
    elif not kind.layers and term.layers != "last":
        yield Problem(f"{where}.layers", term.layers, f"be last with features {kind.name}", "leave it out")
    elif term.teacher_layer is not None and term.layers != "last":
        yield Problem(
            f"{where}.teacher_layer",
            term.teacher_layer,
            f"be left out with layers {term.layers}, which set the teacher's layers",
            "leave it out",
        )


def _unused(where: str, term: Term, kind: FeatureKind) -> Iterator[Line]:
    """Settings without an effect on terms of a kind."""
    for setting, used in (("teacher_layer", kind.inside), ("heads", kind.splits_heads)):
        if (got := getattr(term, setting)) is not None and not used:
            yield Problem(f"{where}.{setting}", got, f"be left out with features {kind.name}", "leave it out")


def _are_pairs(layers: Any, lowest: int) -> bool:
    """Whether this is a list, not empty, of two layer numbers each. `lowest`: layer number."""
    if not isinstance(layers, list) or not layers:
        return False
    return all(
        isinstance(pair, list) and len(pair) == 2 and all(type(layer) is int and layer >= lowest for layer in pair)
        for pair in layers
    )


def _inside_on_tasks(where: str, term: Term, kind: FeatureKind, stage: Train, facts: TermFacts) -> Iterator[Line]:
    """On tasks, both models must read the same tokens for their layers to be compared, and run all of these."""
    if stage.replacing is not None:
        must = "be logits where layers are replaced, of which a step runs only some"
        yield Problem(f"{where}.features", kind.name, must, f"drop the term with ~{where}")
    if facts.own_tokens or facts.windows:
        reason = "with teacher.window" if facts.windows else "where the student has a tokenizer of its own"
        yield Problem(f"{where}.features", kind.name, f"be logits on tasks {reason}", f"drop the term with ~{where}")
    if facts.pruned and (kind.equal_heads or (kind.splits_heads and term.heads is None)):
        advice = f"set {where}.heads to a divisor of any width" if kind.splits_heads else "use hidden instead"
        yield Problem(
            f"{where}.features",
            kind.name,
            "not need all of the teacher's heads after pruning",
            f"{advice}, or drop the term with ~{where}",
        )


def _teacher(where: str, term: Term, kind: FeatureKind, stage: Train, facts: TermFacts) -> Iterator[Line]:
    if facts.own_tokens and stage.data == "corpus" and kind.own_tokens is None:
        fit = [other for other in FEATURE_KINDS.values() if other.own_tokens and not (facts.static and other.layers)]
        names = " or ".join(other.name for other in fit)
        yield Problem(
            f"{where}.features",
            kind.name,
            f"be {names} where the student has a tokenizer of its own: the tokens differ, and so do {kind.name}",
            f"drop the term with ~{where}",
        )
    if facts.several_teachers and kind.inside:
        yield Problem(
            f"{where}.features",
            kind.name,
            "be logits with teacher=ensemble, whose members' layers differ",
            f"drop the term with ~{where}",
        )
