"""Checks of baseline stages against the train stages of their students."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distill.config import Baseline, Config, Evaluate, Train
from distill.config.baselines import on_outputs, trained
from distill.config.plan import CONTROLS
from distill.errors import Line, Problem
from distill.pipeline.validation.rules import nearest
from distill.runtime import quoting


def baselines(config: Config) -> Iterator[Line]:
    """Problems of the baseline stages in the pipeline of a config as the user wrote it."""
    students = _students(config)
    for name in dict.fromkeys(config.pipeline):
        stage = config.stages.get(name)
        if not isinstance(stage, Baseline):
            continue
        key = f"stages.{name}"
        if stage.baseline_of not in students:
            yield Problem(
                f"{key}.baseline_of",
                stage.baseline_of,
                "be a train stage of role student",
                nearest(stage.baseline_of, students),
            )
        else:
            yield from _other_texts(key, trained(config, name).segments, config.stages[stage.baseline_of])
        if stage.teacher is not None:
            yield from _self_trained(key, stage, config)
        for label, term in stage.terms.items() if stage.teacher is None else ():
            if term.weight > 0 and term.compare_with == "teacher":
                where = f"{key}.terms.{label}"
                yield Problem(
                    f"{where}.compare_with",
                    "teacher",
                    "be labels, because a baseline has no teacher",
                    f"drop the term with ~{where}",
                )


def _other_texts(key: str, segments: str | None, student: Any) -> Iterator[Line]:
    """A problem of a baseline on the corpus that does not read the pairs of segments that its student reads."""
    if student.segments != segments:
        label = next((n for n, t in student.terms.items() if t.features == student.segments), segments)
        must = f"have a term on {student.segments or 'no segments'}, as its student, so that both read the same texts"
        do = f"add {quoting.setting(f'+term@{key}.terms.{label}', student.segments)}" if student.segments else "drop it"
        yield Problem(f"{key}.terms", f"a term on {segments}" if segments else "none on segments", must, do)


def _students(config: Config) -> list[str]:
    """The stages that train students."""
    return [name for name, stage in config.stages.items() if isinstance(stage, Train) and stage.role != "teacher"]


def compared(config: Config) -> Iterator[Line]:
    """Controls of evaluate stages that are controls of other students."""
    students = _students(config)
    for name in dict.fromkeys(config.pipeline):
        stage = config.stages.get(name)
        if not isinstance(stage, Evaluate):
            continue
        for setting in CONTROLS.values():
            control = config.stages.get(str(getattr(stage, setting)))
            known = isinstance(control, Baseline) and control.baseline_of in students
            if isinstance(control, Baseline) and known and control.baseline_of != stage.student:
                yield Problem(
                    f"stages.{name}.{setting}",
                    f"{getattr(stage, setting)}, which is trained as {control.baseline_of}",
                    f"be a baseline of {stage.student}, the student that it is compared with",
                    "name another, or leave it out",
                )


def _self_trained(key: str, stage: Baseline, config: Config) -> Iterator[Line]:
    """Problems of a stage with another baseline in the teacher's place."""
    alike = [
        name
        for name, other in config.stages.items()
        if isinstance(other, Baseline) and other.teacher is None and other.baseline_of == stage.baseline_of
    ]
    if stage.teacher not in alike:
        words = f"be a stage of kind baseline, of {stage.baseline_of} and without a teacher of its own"
        yield Problem(f"{key}.teacher", stage.teacher, words, nearest(str(stage.teacher), alike))
    if stage.start is not None:
        yield Problem(
            f"{key}.start", stage.start, f"be left out with {key}.teacher, whose start it has", "leave it out"
        )
    student = config.stages.get(stage.baseline_of)
    if isinstance(student, Train) and not any(term.weight > 0 for term in on_outputs(student.terms).values()):
        words = f"be left out where {stage.baseline_of} learns no outputs of its teacher"
        yield Problem(f"{key}.teacher", stage.teacher, words, "leave the stage out")
