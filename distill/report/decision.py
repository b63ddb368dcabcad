"""What to ship from a run, beside what a user has without it: the end of a run, and the top of its report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from distill.config.baselines import BASELINE
from distill.config.plan import CONTROLS
from distill.config.schemes import COMPILED
from distill.evaluation.results import Model, Results
from distill.report import averages, headline, kept, model_rows, verdict
from distill.report.choose import Ask, choice, least_of, near_chance, no_difference, numbers, offered
from distill.report.itself import is_teacher
from distill.report.loading import Loading, loading
from distill.report.table import Table, number, time_in_ms, times, with_interval
from distill.report.timed import at, median, reported_input
from distill.report.variants import Group, Run, Variant, groups, variants

MOST = 5
"""Rows of the short table, unless there are more targets."""


@dataclass(frozen=True)
class Decision:
    sentences: list[str]
    """What to ship and why, or that nothing is fit to be; and what the teacher added."""
    table: Table
    """Your model, your model in int8, the student of each target, and its controls."""
    uses: list[Loading]
    """How the choice is used and, if that is the teacher, then the student that comes nearest."""
    chosen: Model | None = None


def decided(run: Run) -> Decision:
    """The decision on a finished run, by the same rules as `distill report RUN --choose`."""
    results, (group,) = run.results, groups([run])
    # Where the teacher itself is exported as a student, its forms are those of the export.
    exported = {_form(model) for model in model_rows.of_role(results, "student") if is_teacher(results, model)}
    every = [each for each in variants([run]) if each.first.role != "teacher" or _form(each.first) not in exported]
    ask = Ask(least_of([results]))
    found = choice([run], every, group, ask)
    chosen: Variant | None = found["variant"]
    students = [each for each in every if each.first.role == "student" and not is_teacher(results, each.first)]
    student = next(iter(offered(students, group, ask)), None) or _nearest(students, group, ask)
    if chosen is None:
        known = bool(offered(every, group, replace(ask, least=0.0)))
        sentences = [*found["sentences"], *(["So keep your model as it is."] if known else [])]
    elif is_teacher(results, chosen.first):
        sentences = [_ship(results, chosen, group, ask), *([] if student is None else [_lesser(student, group, ask)])]
    else:
        sentences, student = [_ship(results, chosen, group, ask), _beside_controls(results, chosen.first)], None
    sentences += near_chance([results])
    judged = [each.development for each in (chosen, student) if each is not None]
    if any(judged) and results.seen:
        sentences.append(verdict.known_rows(results))
    uses = [] if chosen is None else [loading(run, chosen.first)]
    if student is not None:
        uses += [found for found in [loading(run, student.first)] if found["command"] or found["code"]]
    ship = None if chosen is None else chosen.first
    return Decision(sentences, _table(results, ship), uses, ship)


def _form(model: Model) -> tuple[str, str]:
    return model.scheme, model.backend


def _ship(results: Results, chosen: Variant, group: Group, ask: Ask) -> str:
    first = chosen.first
    name = f"your model in {model_rows.variant(first)}" if is_teacher(results, first) else chosen.name
    speed = chosen.speedup[group.input or ""]
    same = no_difference(speed)
    # Your model in float32, which is not offered, is then faster, or may be.
    which = "student" if not is_teacher(results, first) and speed.value < 1 else "variant"
    slower = "slower than your model, and " if which == "student" and not same else ""
    unclear = " This is no measurable speedup: the interval includes 1." if same else ""
    why = f"{unclear} It is {slower}the fastest {which} that retains at least {ask.least:g}%"
    judged = chosen.development
    where = f" on the development rows ({verdict.percent(judged.value, ask.least)} there)" if judged else ""
    selected = "" if judged else f" It was chosen {verdict.SAME_SCORES}."
    over = model_rows.reference(results)
    return f"Ship {name}: it retains {numbers(chosen, group, ask)} the speed of {over}.{why}{where}.{selected}"


def _nearest(students: Sequence[Variant], group: Group, ask: Ask) -> Variant | None:
    """Of the fastest variants of all students, the one that retains the most on the rows on which choices are made."""
    fastest: dict[str | None, Variant] = {}
    for each in offered(students, group, replace(ask, least=0.0)):  # the fastest first
        fastest.setdefault(each.first.target, each)
    return max(fastest.values(), key=lambda each: judged.value if (judged := each.judged(False)) else 0.0, default=None)


def _lesser(student: Variant, group: Group, ask: Ask) -> str:
    """On the student that comes nearest, where none retains enough, or none that does is as fast as the teacher."""
    judged, value = student.development, student.judged(False)
    there = f", which retains {verdict.percent(judged.value, ask.least)} there and" if judged else ", which retains"
    where = " on the development rows" if judged else ""
    reported = " on the reported rows" if judged else ""
    enough = value is not None and value.value >= ask.least
    none = (
        f"No student that retains {ask.least:g}%{where} is as fast"
        if enough
        else f"No student retains {ask.least:g}%{where}"
    )
    return f"{none}: the nearest is {student.name}{there} {numbers(student, group, ask)}{reported}."


def _beside_controls(results: Results, model: Model) -> str:
    """What the same student retains without a teacher and, in a run that has one, self-trained, and whether that
    differs: a gain over the labels alone may be one over fewer rows."""
    roles = [] if results.untaught is True else list(CONTROLS)
    pairs = {role: both for role in roles if (both := model_rows.pair(results, model.target, role)) is not None}
    missing = [] if BASELINE in pairs else [headline.missing_baseline(results)]
    return " ".join([*missing, *(_beside(results, model, role, *both) for role, both in pairs.items())])


def _beside(results: Results, model: Model, role: str, student: Model, control: Model) -> str:
    """What a student's control of a role retains, and whether that differs. `model`: the form that is chosen, which may
    be another one than the two are compared in."""
    ours, theirs = (model_rows.retained(each) or 0.0 for each in (student, control))
    same = model_rows.variant(student) == model_rows.variant(model)
    forms = "" if same else f", as {model_rows.variant(student)}, in which the distilled student retains {ours:.1f}%"
    control_is = headline.control_of(results, BASELINE) if role == BASELINE else "the same student, self-trained,"
    differs = headline.difference(results, student, control)
    return f"{control_is[0].upper()}{control_is[1:]} retains {theirs:.1f}%{forms}: {differs}."


def _table(results: Results, chosen: Model | None) -> Table:
    """A row for each model that a user compares. The chosen one is that of its target."""
    shape = reported_input(results)
    rows = list(_rows(results, chosen))[: max(MOST, 2 + len(model_rows.targets(results)))]
    cells = [
        (
            f"{name} (ship this)" if model is chosen else name,
            model_rows.variant(model),
            number(scored.macro),
            "100.0"
            if scored.role == "teacher" and scored.retained is None
            else with_interval(number(model_rows.retained(scored)), model_rows.interval(scored, "retained"), 1),
            time_in_ms(median(model, shape)),
            with_interval(times(model_rows.speedup(model)), model_rows.interval(model, "speedup"), 2),
            number(model.size_mib),
        )
        for name, model, scored in ((name, model, _scored(results, model)) for name, model in rows)
    ]
    columns = (
        "Model",
        "Variant",
        averages.average_name(results),
        "Retained % [95%]",
        f"ms{at([shape])}",
        "Speedup [95%]",
        "MiB",
    )
    roles = ["student" if model is chosen else "" for _, model in rows]  # which the terminal shows in bold
    return Table("What to ship", columns, cells, 2, roles=roles)


def _scored(results: Results, model: Model) -> Model:
    """The row with the scores of a model: of a form of the teacher that was only timed, that of the same arithmetic."""
    if model.role != "teacher" or model.scores:
        return model
    form = (model.scheme.removesuffix(COMPILED), model.backend)
    same = (each for each in model_rows.of_role(results, "teacher") if _form(each) == form and each.scores)
    return next(same, None) or model_rows.reference_teacher(results) or model


def _rows(results: Results, chosen: Model | None) -> Iterator[tuple[str, Model]]:
    """(what a model is, the model), in the order of the table."""
    teachers = [model for model in model_rows.of_role(results, "teacher") if not model.failed]
    plain = [model for model in teachers if model_rows.float32(model)]
    if (reference := model_rows.fastest(results, plain)) is not None:
        yield "your model (teacher)", reference
    over = next((found for model in results.models if (found := kept.kept(model)) is not None), None)
    shown = chosen if chosen is not None and chosen.role == "teacher" else None
    if shown is None and over is not None:
        shown = next((m for m in teachers if _form(m) == (over.scheme, over.backend)), None)
    itself = any(is_teacher(results, model) for model in model_rows.of_role(results, "student"))
    if shown is not None and shown is not reference and not itself:
        yield f"your model in {shown.scheme}", shown
    every = model_rows.targets(results)
    for target in every:
        own = chosen is not None and chosen.role == "student" and chosen.target == target
        if (student := chosen if own else model_rows.chosen(results, target)) is not None:
            yield f"your model in {student.scheme}" if is_teacher(results, student) else student.name, student
    for role in CONTROLS if len(every) == 1 else ():
        if (compared := model_rows.pair(results, every[0], role)) is not None:
            untaught = "another" if results.own_baseline is True else "the same"
            yield {BASELINE: f"{untaught} without a teacher"}.get(role, "the same, self-trained"), compared[1]
