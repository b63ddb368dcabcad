"""The settings with which each train stage is trained. Baselines take theirs from their students. Without torch."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Final, Literal

from distill.config import NO_TEACHER, Baseline, Config, Stage, Term, Train
from distill.config.feature_kinds import FEATURE_KINDS, VECTORS, kinds_of

OWN = (
    *("kind", "role", "start", "teacher", "terms", "transfer", "skip_if_mlm_head", "skip_if_head", "gates"),
    *("quantization_aware", "folds", "replacing"),
)
Control = Literal["baseline", "self-trained"]
"""Role of a model of a baseline stage, which no teacher taught."""

BASELINE: Final = "baseline"
SELF_TRAINED: Final = "self-trained"

SHARED = tuple(field.name for field in fields(Train) if field.name not in OWN)
"""Settings that a baseline takes from the train stage of its student: all but `OWN`."""


def trained(config: Config, name: str) -> Train:
    """The settings with which a train or a baseline stage is trained. `baseline_of` must name a train stage.

    A baseline has the settings `SHARED` of its student's stage, that stage's start and `lr_factors` unless it sets its
    own, and its own terms. It has no gates, replaces no layers and is never skipped, and it is not trained in simulated
    int8. Rows of `transfer` have no labels: only a self-trained one, for which another baseline takes the teacher's
    place, learns them. It has that baseline's start, and its student's terms on a teacher's outputs too.
    """
    stage = config.stages[name]
    if isinstance(stage, Train):
        return stage
    assert isinstance(stage, Baseline)
    student = config.stages[stage.baseline_of]
    assert isinstance(student, Train)
    shared = {setting: getattr(student, setting) for setting in SHARED}
    shared["lr_factors"] = stage.lr_factors or student.lr_factors
    alone = stage.teacher is None
    terms = stage.terms if alone else on_outputs(student.terms) | stage.terms
    before = stage if alone else config.stages.get(str(stage.teacher), stage)
    return Train(
        role=BASELINE if alone else SELF_TRAINED,
        start=getattr(before, "start", None) or student.start,
        teacher=stage.teacher,
        transfer=not alone and student.transfer,
        terms=terms,
        **shared,
    )


def expanded(config: Config) -> Config:
    """The config with train settings (`trained`) in place of each baseline stage whose student has a train stage.

    Without a teacher, the model in its place is trained on soft labels: it gets the terms on outputs of its student.
    """
    if config.teacher.kind == NO_TEACHER:
        config = replace(config, stages={name: _on_soft_labels(config, name) for name in config.stages})
    baselines = {name: stage for name, stage in config.stages.items() if isinstance(stage, Baseline)}
    valid = [name for name, stage in baselines.items() if isinstance(config.stages.get(stage.baseline_of), Train)]
    return replace(config, stages=config.stages | {name: trained(config, name) for name in valid})


def _on_soft_labels(config: Config, name: str) -> Stage:
    stage = config.stages[name]
    if not isinstance(stage, Train) or stage.role != "teacher" or stage.data != "tasks":
        return stage
    of_students = [s.terms for s in config.stages.values() if isinstance(s, Train) and s.teacher == name]
    outputs = on_outputs(of_students[0]) if of_students else {}
    return replace(stage, terms=outputs | stage.terms, skip_if_head=False)


def on_outputs(terms: dict[str, Term]) -> dict[str, Term]:
    """Those that compare outputs with a teacher's."""
    return {
        label: term
        for label, term in terms.items()
        if term.compare_with == "teacher" and (kind := FEATURE_KINDS.get(term.features)) is not None and kind.head
    }


def is_taught(stage: Stage, embeds: bool) -> bool:
    """Whether a train stage learns from its teacher: by a term with a weight, or within the teacher's layers. `embeds`:
    whether a task has embedders. Models of other tasks are trained without terms on vectors."""
    if not isinstance(stage, Train) or stage.teacher is None:
        return False
    kinds = (kind for name, kind in kinds_of(stage.terms).items() if stage.terms[name].compare_with == "teacher")
    return stage.replacing is not None or any(embeds or kind is not VECTORS for kind in kinds)
