"""Checks of baseline stages against the train stages of their students."""

from __future__ import annotations

from collections.abc import Iterator

from distill.config import Baseline, Config, Train
from distill.errors import Line, Problem
from distill.pipeline.validation.rules import nearest


def baselines(config: Config) -> Iterator[Line]:
    """Problems of the baseline stages in the pipeline of a config as the user wrote it."""
    students = [name for name, stage in config.stages.items() if isinstance(stage, Train) and stage.role != "teacher"]
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
        teacher = config.stages.get(stage.teacher) if stage.teacher is not None else None
        if teacher is not None and (not isinstance(teacher, Baseline) or teacher.teacher is not None):
            words = "be a stage of kind baseline without a teacher of its own"
            yield Problem(f"{key}.teacher", stage.teacher, words, "a student of the teacher is a stage of kind train")
        for label, term in stage.terms.items() if stage.teacher is None else ():
            if term.weight > 0 and term.compare_with == "teacher":
                where = f"{key}.terms.{label}"
                yield Problem(
                    f"{where}.compare_with",
                    "teacher",
                    "be labels, because a baseline has no teacher",
                    f"drop the term with ~{where}",
                )
