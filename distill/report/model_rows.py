"""What the parts of a report read from the rows of models in a result: which they are, and what they score and take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from distill.config.backends import BACKENDS
from distill.config.baselines import BASELINE
from distill.evaluation.record import Interval
from distill.evaluation.results import Identity, Model, Results, Scores, known
from distill.report import kept
from distill.report.timed import Compared, median, reported_input

LEARNED = ("train", "development")
"""Splits of the training rows: rows that train, and rows on which choices are made."""
Key = Literal["retained", "above_chance", "speedup"]
REFERENCE = "the teacher's fastest float32 variant"


def variant(model: Identity) -> str:
    """Scheme and backend of a model, e.g. `int8 onnxruntime`."""
    return f"{model.scheme} {model.backend}"


def named(model: Identity) -> str:
    """Name, scheme and backend of a model."""
    return f"{model.name} {variant(model)}"


def reference(results: Results) -> str:
    """The reference of speedups. On a GPU the teacher may also compute in 16 bits."""
    return "the teacher's fastest variant in 32 or 16 bits" if results.gpu else REFERENCE


def float32(model: Model) -> bool:
    """Whether a model is in float32: fp32, or fp32_medium."""
    return model.scheme.startswith("fp32")


def of_role(results: Compared, role: str) -> list[Model]:
    return [model for model in results.models if model.role == role]


def targets(results: Compared) -> list[str | None]:
    """The targets of the students, in order; None for a student without a target."""
    return list(dict.fromkeys(model.target for model in of_role(results, "student")))


def task_names(results: Results) -> list[str]:
    """The tasks on which at least one model was scored, in order."""
    return list(dict.fromkeys(task for m in results.models for task in (m.scores or ())))


def outside(results: Results) -> list[str]:
    """The scored tasks that are not in the headline."""
    apart = {row.task for row in results.coverage if not row.in_headline}
    return [task for task in task_names(results) if task in apart]


def macro_score(results: Results) -> str:
    """The score that the headline is about: `macro score`, and the tasks that are not in it."""
    return f"macro score{exclusion(results)}"


def exclusion(results: Results) -> str:
    """` without TASK`, for the tasks that are not in the headline; an empty text if all are."""
    apart = outside(results)
    return f" without {' and '.join(apart)}" if apart else ""


def _host_only(results: Results, model: Model) -> bool:
    """Whether the model ran on the CPU although the run had a GPU."""
    return bool(results.gpu) and BACKENDS[model.backend].cpu_only


def where(results: Results, model: Model) -> str:
    """`, on the CPU` for a model that ran on the CPU although the run had a GPU; else an empty text."""
    return ", on the CPU" if _host_only(results, model) else ""


def on_the_cpu(results: Results) -> list[str]:
    """The note on models that ran on the CPU although the run had a GPU; empty without such models."""
    backends = dict.fromkeys(model.backend for model in results.models if _host_only(results, model))
    return [f"Rows with backend {' or '.join(backends)} ran on the CPU, not on the {results.gpu}."] if backends else []


def task_scores(scores: Scores) -> dict[str, float]:
    """Task -> mean of its metrics, in percent."""
    return {task: fmean(metrics.values()) for task, metrics in scores.items() if metrics}


def retained(model: Model) -> float | None:
    """The retained % of the headline: of the macro score over its tasks."""
    return model.retained.headline if model.retained else None


def above_chance(model: Model) -> float | None:
    """As `retained`, of the scores minus those of the best constant predictors."""
    return known(model.retained.above_chance) if model.retained else None


def development(model: Model, above: bool = False) -> float | None:
    """The retained % on the rows on which the student is chosen; with `above`, of the score above chance."""
    return known(on.development_above_chance if above else on.development) if (on := model.retained) else None


def speedup(model: Model) -> float | None:
    """Against the teacher's fastest float32 variant over all backends, with the run's load."""
    return model.speedup.best_teacher if model.speedup else None


def interval(model: Model, key: Key) -> Interval | None:
    """The 95% interval of `retained`, `above_chance` or `speedup`."""
    if key == "speedup":
        return kept.of_rounds(model.speedup.ci95) if model.speedup else None
    ways = model.retained
    return (ways.ci95 if key == "retained" else known(ways.above_chance_ci95)) if ways else None


def chosen(results: Compared, target: str | None = None) -> Model | None:
    """The student of the headline: its fastest variant, by the median time that exported folders have. Scores play no
    part in the choice."""
    return fastest(results, [m for m in with_share(results, target) if m.role == "student"])


def fastest(results: Compared, models: Sequence[Model]) -> Model | None:
    """The model that takes the least median time under the run's load; without times, that of the largest speedup."""
    inputs = reported_input(results)
    return min(models, key=lambda m: (median(m, inputs) or math.inf, -(speedup(m) or 0.0)), default=None)


def reference_teacher(results: Results) -> Model | None:
    """The teacher that all models are compared with: the one that was scored and has no retained %."""
    scored = [m for m in of_role(results, "teacher") if m.scores and not m.failed]
    return next((m for m in scored if m.retained is None), next(iter(scored), None))


def teacher_scores(results: Results) -> dict[str, float]:
    """Task -> the score of that teacher."""
    teacher = reference_teacher(results)
    return {} if teacher is None else task_scores(teacher.scores or {})


def first_student(results: Results) -> Model | None:
    """The student of the headline, of several targets that of the first."""
    return chosen(results, next(iter(targets(results)), None))


def with_share(results: Compared, target: str | None) -> list[Model]:
    """The models of a target that have a share of the teacher's score."""
    models = [m for m in results.models if not m.failed and m.target == target]
    return [m for m in models if retained(m) is not None]


def pair(results: Compared, target: str | None = None, role: str = BASELINE) -> tuple[Model, Model] | None:
    """(student, its control of a role) in one variant: the headline's if both have it, else the first that both have,
    else None."""
    scored = with_share(results, target)
    students = {variant(m): m for m in scored if m.role == "student"}
    controls = {variant(m): m for m in scored if m.role == role}
    shared = [key for key in students if key in controls]
    head = chosen(results, target)
    if head is not None and variant(head) in shared:
        return students[variant(head)], controls[variant(head)]
    return (students[shared[0]], controls[shared[0]]) if shared else None


def target_name(target: str | None) -> str:
    return "no target" if target is None else target


def counted(count: int, name: str) -> str:
    """`1 student`, `2 students`."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"
