"""The headline of a report: what was reached, in sentences.

No sentence claims more than the numbers support: a loss against the baseline, a slower student and a failed student
are reported as such.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import UNSET

from distill.config.baselines import BASELINE
from distill.config.plan import CONTROLS
from distill.evaluation.results import Model, Results, known
from distill.report import kept, verdict
from distill.report.itself import is_teacher, without_student
from distill.report.model_rows import (
    chosen,
    counted,
    development,
    fastest,
    interval,
    macro_score,
    of_role,
    outside,
    pair,
    reference,
    reference_teacher,
    retained,
    speedup,
    target_name,
    targets,
    task_names,
    variant,
    where,
    with_share,
)
from distill.report.table import with_interval
from distill.report.timed import Compared, at, reported_input

SMOKE = "SMOKE RUN: tiny stand-in models and data. These numbers mean nothing."
NO_STUDENT = "No student was scored, so there is no result."
SELF_TRAINING = "trained on the labels and, in the teacher's place, on the outputs of the baseline (self-training)"
NO_BASELINE = "There is no baseline in the same variant: the gain from distillation is unknown."
UNTAUGHT = "No teacher taught a student, so there is no gain from distillation."


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
        f"{with_interval(f'{retained(m):.1f}%', interval(m, 'retained'), 1)} at {speedup(m) or 0:.2f}x "
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
            f"Gain over {_controls_of(results, role)}, in percentage points, as {', '.join(variants)}: "
            f"{', '.join(gains)}."
        )


def _controls_of(results: Results, role: str) -> str:
    if role == BASELINE and results.own_baseline is True:
        return "other students, which start from other weights and which no teacher taught"
    return f"the same students{trained(results, role)}"


def shown_controls(results: Results) -> list[str]:
    """The roles of controls that a student that a teacher taught is compared with in the same variant."""
    every = [] if results.untaught is True else targets(results)
    return [role for role in CONTROLS if any(pair(results, target, role) for target in every)]


def missing_baseline(results: Results) -> str:
    if results.untaught is True:
        return UNTAUGHT
    failed = any(m.failed for m in of_role(results, BASELINE))
    return "The baseline failed: the gain from distillation is unknown." if failed else NO_BASELINE


def _at_shape(results: Results) -> str:
    """The shape that speedups were measured at, explained; nothing where no shape is known.

    With shared heads, it adds that the speedup is for all tasks together.
    """
    shape = reported_input(results)
    text = f"{at([shape])} (batch x length)" if shape and re.fullmatch(r"\d+x\d+", shape) else at([shape])
    count = len(task_names(results))
    return f"{text}, for its {count} tasks together" if results.heads and count > 1 else text


def control_of(results: Results, role: str) -> str:
    """The control of a role, as the subject of a sentence."""
    if role == BASELINE and results.own_baseline is True:
        return "another student, which starts from other weights and which no teacher taught,"
    ends = "," if results.taught_start or role != BASELINE else ""
    return f"the same student{trained(results, role)}{ends}"


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
    students = [m for target in targets(results) for m in with_share(results, target) if m.role == "student"]
    apart = all(development(m) is not None for m in students)
    enough = [m for m in students if ((development(m) if apart else retained(m)) or 0) >= least]
    best = fastest(results, enough)
    where = " on the development rows" if apart else ""
    form = f"form of {yours[:1].lower()}{yours[1:]}" if without_student(results) else "student"
    if best is None:
        return f"No {form} retains {least:g}%{where}."
    origin = f"It was selected {verdict.SAME_SCORES}."
    if apart:
        there = verdict.percent(development(best) or 0.0, least)
        origin = f"It was selected on the development rows, on which it retains {there}."
    name = variant(best) if is_teacher(results, best) else f"{best.name} ({variant(best)})"
    own = verdict.percent(retained(best) or 0.0, least)
    return (
        f"The fastest {form} that retains at least {least:g}%{where} is {name}: "
        f"{own} at {speedup(best) or 0:.2f}x. {origin}{verdict.keeps(best, least) if apart else ''}"
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
    others = kept.sentence(model) + _elsewhere(results, model)
    if ends and ends[0] <= 1 <= ends[1]:
        return f"{text} at {speed}. This is no measurable speedup: the interval includes 1.{others}"
    return f"{text} but is slower: {speed}.{others}" if times < 1 else f"{text} at {speed}.{others}"


def _elsewhere(results: Compared, model: Model) -> str:
    """Sentences on the speedups from texts, with the other load and, where these were timed, with inputs of a fixed
    batch and length; empty if the speedup of the headline is one of the latter."""
    measured = model.speedup.by_input if model.speedup else {}
    fixed = {name: row for name, row in measured.items() if re.fullmatch(r"\d+x\d+", name)}
    own = reported_input(results)
    if own in fixed:
        return ""
    text = model.from_text.get(own or "")
    tokenizer = f" From texts, with the tokenizer, it is {text.speedup.median:.2f}x." if text else ""
    loads = [
        f" It is {row.median:.2f}x{kept.between(kept.of_rounds(row.ci95), 2)}{at([name])}."
        for name, row in measured.items()
        if name not in fixed and name != own
    ]
    listed = ", ".join(f"{row.median:.2f}x at {name}" for name, row in fixed.items())
    shaped = f" With texts of a fixed length (batch x length) it is {listed}." if listed else ""
    return f"{tokenizer}{''.join(loads)}{shaped}"


def _against(results: Results, model: Model, role: str) -> str:
    """A sentence on the gain over a student's control of a role, which it has."""
    compared = pair(results, model.target, role)
    assert compared is not None
    student, control = compared
    ours, theirs = retained(student) or 0.0, retained(control) or 0.0
    same = control_of(results, role)
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
    other = {BASELINE: "it"}.get(control.role, "self-training") if _differs_otherwise(results, control.role) else ""
    return _verdict((retained(student) or 0.0) - (retained(control) or 0.0), other)


def _differs_otherwise(results: Results, role: str) -> bool:
    """Whether a control differs from its student in more than the teacher."""
    return role != BASELINE or results.own_baseline is True


def _verdict(gain: float, other: str) -> str:
    """What a gain in percentage points is over: `other`, or distillation where that is all that differs."""
    if other:
        than = f"{abs(gain):.1f} percentage points {'less' if gain < 0 else 'more'} than"
        student = "the student" if other == "it" else "the student with the teacher"
        return f"{student} retains {'as much as' if abs(gain) < 0.05 else than} {other}"
    if abs(gain) < 0.05:
        return "distillation made no difference"
    if gain < 0:
        return f"distillation LOST {-gain:.1f} percentage points"
    return f"distillation gained {gain:.1f} percentage points"


def _overlap(student: Model, control: Model) -> str:
    a, b = interval(student, "retained"), interval(control, "retained")
    return " The two 95% intervals overlap." if a and b and a[0] <= b[1] and b[0] <= a[1] else ""
