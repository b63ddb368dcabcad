"""Runs without a student, which report forms of the user's own model, such as int8, in the student's place."""

from __future__ import annotations

from distill.evaluation.results import Model
from distill.report.timed import Compared


def is_teacher(results: Compared, model: Model) -> bool:
    """Whether a model is the teacher itself, perhaps in another form: a run without a student reports it as one."""
    return model.step in {other.step for other in results.models if other.role == "teacher"}


def without_student(results: Compared) -> bool:
    """Whether what a run reports as the student is the teacher itself."""
    students = [model for model in results.models if model.role == "student"]
    return bool(students) and all(is_teacher(results, model) for model in students)


def note(results: Compared) -> list[str]:
    """What the rows of students are in such a run, as a sentence in a list; empty for other runs."""
    none = "The run has no student: the rows of the student are the teacher itself in several forms."
    return [none] if without_student(results) else []
