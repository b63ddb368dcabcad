"""The headline of a report, and functions by which its other parts read results.

No sentence claims more than the numbers support: a loss against the baseline, a slower student and a failed student
are reported as such.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Literal

from msgspec import UNSET

from distill.config.backends import BACKENDS
from distill.config.baselines import BASELINE
from distill.config.plan import CONTROLS
from distill.evaluation.record import Interval
from distill.evaluation.results import Identity, Model, Results, Scores, known
from distill.report import kept, verdict
from distill.report.itself import is_teacher, without_student
from distill.report.timed import Compared, at, elsewhere, median, reported_input

SMOKE = "SMOKE RUN: tiny stand-in models and data. These numbers mean nothing."
NO_STUDENT = "No student was scored, so there is no result."
SELF_TRAINING = "trained on the labels and, in the teacher's place, on the outputs of the baseline (self-training)"
NO_BASELINE = "There is no baseline in the same variant: the gain from distillation is unknown."
UNTAUGHT = "No teacher taught a student, so there is no gain from distillation."
LEARNED = ("train", "development")
"""Splits of the training rows: rows that train, and rows on which choices are made."""
Key = Literal["retained", "above_chance", "speedup"]


def variant(model: Identity) -> str:
    """Scheme and backend of a model, e.g. `int8 onnxruntime`."""
    return f"{model.scheme} {model.backend}"


def named(model: Identity) -> str:
    """Name, scheme and backend of a model."""
    return f"{model.name} {variant(model)}"


REFERENCE = "the teacher's fastest float32 variant"


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


def kinds(results: Results) -> dict[str, str]:
    """Stage -> its kind."""
    return {stage.name: stage.kind for stage in results.stages}


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
    return fastest(results, [m for m in _scored(results, target) if m.role == "student"])


def fastest(results: Compared, models: Sequence[Model]) -> Model | None:
    """The model that takes the least median time under the run's load; without times, that of the largest speedup."""
    inputs = reported_input(results)
    return min(models, key=lambda m: (median(m, inputs) or math.inf, -(speedup(m) or 0.0)), default=None)


def reference_teacher(results: Results) -> Model | None:
    """The teacher that all models are compared with: the one that was scored and has no retained %."""
    scored = [m for m in of_role(results, "teacher") if m.scores and not m.failed]
    return next((m for m in scored if m.retained is None), next(iter(scored), None))


def first_student(results: Results) -> Model | None:
    """The student of the headline, of several targets that of the first."""
    return chosen(results, next(iter(targets(results)), None))


def _scored(results: Compared, target: str | None) -> list[Model]:
    models = [m for m in results.models if not m.failed and m.target == target]
    return [m for m in models if retained(m) is not None]


def pair(results: Compared, target: str | None = None, role: str = BASELINE) -> tuple[Model, Model] | None:
    """(student, its control of a role) in one variant: the headline's if both have it, else the first that both have,
    else None."""
    scored = _scored(results, target)
    students = {variant(m): m for m in scored if m.role == "student"}
    controls = {variant(m): m for m in scored if m.role == role}
    shared = [key for key in students if key in controls]
    head = chosen(results, target)
    if head is not None and variant(head) in shared:
        return students[variant(head)], controls[variant(head)]
    return (students[shared[0]], controls[shared[0]]) if shared else None


def headline(results: Results, yours: str = "Your model") -> str:
    """The result in two or three sentences; a few more for several students.

    Args:
        yours: what the teacher is called in a run that reports forms of it in the student's place.
    """
    every = targets(results)
    if len(every) > 1:
        return " ".join(_several(results))
    target = every[0] if every else None
    model = chosen(results, target)
    if model is None and (scored := [m for m in of_role(results, "student") if m.scores and not m.failed]):
        return _without_share(results, scored[0], yours)
    if model is None:
        reasons = [f"{variant(m)}: {m.failed}" for m in of_role(results, "student") if m.failed]
        return " ".join([NO_STUDENT, *reasons])
    kept = [] if (least := results.least_retained) is UNSET else [_fastest(results, least, yours)]
    if is_teacher(results, model):
        return " ".join([quality_and_speed(results, model, yours), *kept])
    controls = shown_controls(results)
    against = [_against(results, model, role) for role in controls]
    missing = [] if BASELINE in controls else [missing_baseline(results)]
    return " ".join([quality_and_speed(results, model, yours), *missing, *against, *kept])


def _subject(results: Results, model: Model, yours: str) -> str:
    """A model as the subject of a sentence."""
    place = f"({model.backend}{where(results, model)})"
    own = is_teacher(results, model)
    return f"{yours} in {model.scheme} {place}" if own else f"The {model.scheme} student {place}"


def _without_share(results: Results, student: Model, yours: str) -> str:
    """The result where no share of the teacher's score is defined."""
    teacher = reference_teacher(results)
    ours, theirs = (
        f"{m.macro:.1f}" if m is not None and m.macro is not None else "unknown" for m in (student, teacher)
    )
    times = speedup(student)
    speed = "" if times is None else f", at {times:.2f}x the speed of {reference(results)}"
    return (
        f"The teacher's {macro_score(results)} is {theirs}, and not above 0, so that no share of it is defined. "
        f"{_subject(results, student, yours)} has {ours}{speed}."
    )


def _without_ratio(results: Results) -> str:
    """` without TASK`, for tasks of the headline in which the teacher's score is not above 0; else an empty text."""
    left = {task for m in results.models if m.retained for task in known(m.retained.left_out) or ()}
    tasks = [task for task in task_names(results) if task in left and task not in outside(results)]
    return f" without {' and '.join(tasks)}, where that is not above 0" if tasks else ""


def _several(results: Results) -> Iterator[str]:
    """Retained % and speedup of each student, the fastest that retains enough, the gains over the baselines."""
    students = {target: model for target in targets(results) if (model := chosen(results, target)) is not None}
    if not students:
        yield NO_STUDENT
        return
    numbers = [
        f"{retained(m):.1f}%{_ends(interval(m, 'retained'), 1)} at {speedup(m) or 0:.2f}x "
        f"({target_name(t)}, {variant(m)}{kept.short(m)})"
        for t, m in students.items()
    ]
    yield (
        f"{counted(len(students), 'student')}, as retained % of the teacher's {macro_score(results)}"
        f"{_without_ratio(results)} at speedup over "
        f"{reference(results)}{_at_shape(results)}: {'; '.join(numbers)}."
    )
    if (least := results.least_retained) is not UNSET:
        yield _fastest(results, least, "")
    if BASELINE not in (controls := shown_controls(results)):
        yield missing_baseline(results)
    for role in controls:
        compared = {target: both for target in targets(results) if (both := pair(results, target, role)) is not None}
        variants = dict.fromkeys(variant(student) for student, _ in compared.values())
        gains = [
            f"{(retained(s) or 0) - (retained(b) or 0):+.1f} ({target_name(t)}{verdict.remark(results, s, b)})"
            for t, (s, b) in compared.items()
        ]
        yield (
            f"Gain over the same students{trained(results, role)}, in percentage points, as {', '.join(variants)}: "
            f"{', '.join(gains)}."
        )


def shown_controls(results: Results) -> list[str]:
    """The roles of controls that a student that a teacher taught is compared with in the same variant."""
    every = [] if results.untaught is True else targets(results)
    return [role for role in CONTROLS if any(pair(results, target, role) for target in every)]


def missing_baseline(results: Results) -> str:
    if results.untaught is True:
        return UNTAUGHT
    failed = any(m.failed for m in of_role(results, BASELINE))
    return "The baseline failed: the gain from distillation is unknown." if failed else NO_BASELINE


def _ends(ends: Interval | None, digits: int) -> str:
    return f" [{ends[0]:.{digits}f}, {ends[1]:.{digits}f}]" if ends else ""


def target_name(target: str | None) -> str:
    return "no target" if target is None else target


def counted(count: int, name: str) -> str:
    """`1 student`, `2 students`."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def _at_shape(results: Results) -> str:
    """The shape that speedups were measured at, explained; nothing where no shape is known.

    With shared heads, it adds that the speedup is for all tasks together.
    """
    shape = reported_input(results)
    text = f"{at([shape])} (batch x length)" if shape and re.fullmatch(r"\d+x\d+", shape) else at([shape])
    count = len(task_names(results))
    return f"{text}, for its {count} tasks together" if results.heads and count > 1 else text


def trained(results: Results, role: str) -> str:
    """How the control of a role was trained."""
    one = "one" if role == BASELINE else "a teacher"
    start = f", from weights that were trained with {one}" if results.taught_start else ""
    return f" trained without a teacher{start}" if role == BASELINE else f", {SELF_TRAINING}{start}"


def _fastest(results: Results, least: float, yours: str) -> str:
    """The fastest student, in any variant, that retains at least `least` percent of the teacher's score; in a run
    without a student, the fastest form of the teacher.

    Chosen on the development rows, unless a student has no score on them.
    """
    students = [m for target in targets(results) for m in _scored(results, target) if m.role == "student"]
    apart = all(development(m) is not None for m in students)
    enough = [m for m in students if ((development(m) if apart else retained(m)) or 0) >= least]
    best = fastest(results, enough)
    where = " on the development rows" if apart else ""
    form = f"form of {yours[:1].lower()}{yours[1:]}" if without_student(results) else "student"
    if best is None:
        return f"No {form} retains {least:g}%{where}."
    origin = f"It was selected {verdict.SAME_SCORES}."
    if apart:
        origin = f"It was selected on the development rows, on which it retains {development(best):.1f}%."
    name = variant(best) if is_teacher(results, best) else f"{best.name} ({variant(best)})"
    return (
        f"The fastest {form} that retains at least {least:g}%{where} is {name}: "
        f"{retained(best):.1f}% at {speedup(best) or 0:.2f}x. {origin}{verdict.keeps(best, least) if apart else ''}"
    )


def quality_and_speed(results: Results, model: Model, yours: str) -> str:
    """What a student, or a form of the teacher, retains, and how fast it is. `yours`: as in `headline`."""
    percent = f"{retained(model):.1f}%{kept.between(interval(model, 'retained'), 1)}"
    of, over = f"the teacher's {macro_score(results)}", reference(results)
    if is_teacher(results, model):
        of, over = f"its float32 {macro_score(results)}", over.replace("the teacher's", "its")
    text = f"{_subject(results, model, yours)} retains {percent} of {of}{_without_ratio(results)}"
    times = speedup(model)
    if times is None:
        return f"{text}; its speed was not measured."
    ends = interval(model, "speedup")
    speed = f"{times:.2f}x{kept.between(ends, 2)} the speed of {over}{_at_shape(results)}"
    others = kept.sentence(model) + elsewhere(results, model)
    if ends and ends[0] <= 1 <= ends[1]:
        return f"{text} at {speed}. This is no measurable speedup: the interval includes 1.{others}"
    return f"{text} but is slower: {speed}.{others}" if times < 1 else f"{text} at {speed}.{others}"


def _against(results: Results, model: Model, role: str) -> str:
    """A sentence on the gain over a student's control of a role, which it has."""
    compared = pair(results, model.target, role)
    assert compared is not None
    student, control = compared
    ours, theirs = retained(student) or 0.0, retained(control) or 0.0
    same = f"the same student{trained(results, role)}{',' if results.taught_start or role != BASELINE else ''}"
    if variant(student) == variant(model):
        text = f"{same[0].upper()}{same[1:]} retains {theirs:.1f}%"
    else:
        text = f"Compared as {variant(student)}, the distilled student retains {ours:.1f}% and {same} {theirs:.1f}%"
    test, said = verdict.between(results, student, control), difference(results, student, control)
    if test is not None and not test.distinguishable:
        return f"{text}: {said} ({verdict.numbers(test)})."
    remark = _overlap(student, control) if test is None else f" On the macro scores: {verdict.numbers(test)}."
    return f"{text}: {said}.{remark}"


def difference(results: Results, student: Model, control: Model) -> str:
    """Whether what a student and its control retain differs, and by how much: a clause."""
    test = verdict.between(results, student, control)
    if test is not None and not test.distinguishable:
        return "the two are not distinguishable" if verdict.tied(test) else "whether the two differ is undecided"
    if test is not None and _without_ratio(results):  # the test has all tasks, and the shares have not
        more = "higher" if test.difference > 0 else "lower"
        return f"over all tasks, the student's score is {abs(test.difference):.1f} points {more}"
    return _verdict((retained(student) or 0.0) - (retained(control) or 0.0), control.role)


def _verdict(gain: float, role: str) -> str:
    if role != BASELINE:
        than = f"{abs(gain):.1f} percentage points {'less' if gain < 0 else 'more'} than"
        return f"the student with the teacher retains {'as much as' if abs(gain) < 0.05 else than} self-training"
    if abs(gain) < 0.05:
        return "distillation made no difference"
    if gain < 0:
        return f"distillation LOST {-gain:.1f} percentage points"
    return f"distillation gained {gain:.1f} percentage points"


def _overlap(student: Model, control: Model) -> str:
    a, b = interval(student, "retained"), interval(control, "retained")
    return " The two 95% intervals overlap." if a and b and a[0] <= b[1] and b[0] <= a[1] else ""
