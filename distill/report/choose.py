"""Chooses the variant that meets all conditions and is the best by one goal, and compares it with the next best."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from msgspec import UNSET

from distill.config.loads import LOADS, SINGLE, SINGLE_TEXTS
from distill.errors import ConfigError
from distill.evaluation.results import Results
from distill.report import model_rows, verdict
from distill.report.itself import is_teacher
from distill.report.loading import loading
from distill.report.table import time_in_ms
from distill.report.timed import batches
from distill.report.variants import CHOSEN, Group, Run, Value, Variant

LEAST = 97.0
"""Least retained %, where neither a run nor a reader names one."""
GOALS = {
    "speedup": ("max", "fastest"),
    "retained": ("max", "closest to its teacher"),
    "above_chance": ("max", "closest to its teacher"),
    "size": ("min", "smallest"),
}
"""Number by which the best is chosen -> which end of it is the best, and the word for the best."""
ALIKE = 1.0
"""Points. If the scores of the runs' teachers differ by as much, a sentence says so."""
_WORDS = "conditions retained=97 or above_chance=97 (at least), ms=5, mib=20 (at most), load=single, and one goal"


@dataclass(frozen=True)
class Ask:
    """The conditions of a reader, in percent, milliseconds and MiB; None for no condition."""

    least: float = LEAST
    above: bool = False
    """Whether `least` is of what the score has above chance."""
    ms: float | None = None
    mib: float | None = None
    goal: str = "speedup"
    load: str | None = None
    """How the model will be asked, as in `config.loads`; None for the load of the runs."""


def parsed(words: Sequence[str]) -> Ask:
    """`retained=97 ms=5 mib=20 speedup=max` as an Ask. Raises ConfigError for another word, or for a key given
    twice."""
    found: dict[str, str] = {}
    goals, loads = list[str](), list[str]()
    for word in words:
        key, _, value = word.partition("=")
        if key in GOALS and GOALS[key][0] == value:
            goals.append(key)
        elif key in ("retained", "above_chance", "ms", "mib") and re.fullmatch(r"\d+(\.\d+)?", value):
            if key in ("retained", "above_chance") and 0 < float(value) <= 1:
                _refuse(word, f"a percentage, above 1, such as {key}=97")
            found[key] = value if key not in found else _refuse(word, "given once")
        elif key == "load" and value in LOADS:
            loads.append(value)
        else:
            goal = " or ".join(f"{name}={end}" for name, (end, _) in GOALS.items())
            _refuse(word, f"one of the {_WORDS}: {goal}")
    if len(loads) > 1:
        _refuse(" ".join(words), "at most one load")
    if len(goals) > 1 or {"retained", "above_chance"} <= found.keys():
        _refuse(" ".join(words), "at most one goal, and retained or above_chance")
    given = {key: float(value) for key, value in found.items()}
    above = "above_chance" in found or goals == ["above_chance"]
    least = given.get("above_chance", given.get("retained", 0.0))
    goal, load = goals[0] if goals else "speedup", loads[0] if loads else None
    return Ask(least, above, given.get("ms"), given.get("mib"), goal, load)


def _refuse(word: str, must: str) -> str:
    raise ConfigError(f"--choose: got {word}; must be {must}; correct it")


def least_of(results: Sequence[Results]) -> float:
    """The least retained % that the runs were made for; a default where they name none or several."""
    named = {run.least_retained for run in results if run.least_retained is not UNSET}
    return float(named.pop()) if len(named) == 1 else LEAST


def ranked(variants: Sequence[Variant], name: str, ask: Ask) -> list[Variant]:
    """The variants with a speed at the input `name` and a retained share, the best by the goal first.

    The variants of a single run are the faster, the less time they take, as for its headline and its exported folders.
    """
    one_run = len({run for variant in variants for run in variant.runs}) == 1

    def order(variant: Variant) -> tuple[float, float]:
        judged, fast = variant.judged(ask.above), variant.speedup[name].value
        fast = -variant.ms[name] if one_run and name in variant.ms else fast
        score = judged.value if judged else 0.0
        small = -variant.mib if variant.mib is not None else float("-inf")
        return {"speedup": (fast, score), "size": (small, score)}.get(ask.goal, (score, fast))

    placed = [variant for variant in variants if name in variant.speedup and variant.kept(ask.above) is not None]
    return sorted(placed, key=order, reverse=True)


def offered(variants: Sequence[Variant], group: Group, ask: Ask) -> list[Variant]:
    """The variants that meet all conditions, the best first. One that lacks a number that is asked for is left out."""
    if group.input is None:
        return []
    best_first = ranked(variants, group.input, ask)
    return [
        variant
        for variant in best_first
        if variant.first.role in CHOSEN and _meets(variant, group.input, ask) and _gains(variant, group.input, ask)
    ]


def _gains(variant: Variant, name: str, ask: Ask) -> bool:
    """Whether a teacher that is quantized is faster than in float32, which is why a reader would take it."""
    return variant.first.role != "teacher" or ask.goal != "speedup" or variant.speedup[name].value > 1


def _meets(variant: Variant, name: str, ask: Ask) -> bool:
    value = variant.judged(ask.above)
    limits = ((ask.ms, variant.ms.get(name)), (ask.mib, variant.mib))
    within = all(most is None or (number is not None and number <= most) for most, number in limits)
    return value is not None and (not ask.least or value.value >= ask.least) and within


def choice(runs: Sequence[Run], variants: Sequence[Variant], group: Group, ask: Ask) -> dict[str, Any]:
    """`sentences`, the chosen `variant`, the `next` best, and how to load the choice (`loading`); None if absent."""
    if ask.load is not None:
        first = runs[group.runs[0]].results
        group = replace(group, input=SINGLE_TEXTS if ask.load == SINGLE else batches(first))
    best, second, *_ = [*offered(variants, group, ask), None, None]
    if best is None:
        return {"sentences": _none(runs, variants, group, ask), "variant": None, "next": None, "loading": None}
    sentences = [_chosen(runs, best, group, ask), *_teachers(runs, best, group)]
    if second is not None:
        other = f"The next best, {_called(runs, second)}{_where(runs, second, group)}, retains "
        shown = compared(runs, best, second, ask.above)
        sentences.append(f"{other}{numbers(second, group, ask)}; {shown}.")
    else:
        sentences.append("No other variant meets the conditions.")
    if best.first.role == "teacher":
        sentences += _students(runs, variants, group, ask)
    load = loading(runs[best.best], best.taken)
    return {"sentences": sentences, "variant": best, "next": second, "loading": load}


def _teachers(runs: Sequence[Run], best: Variant, group: Group) -> list[str]:
    """A sentence on the teachers of the runs, where one of them is worse than another: a student retains more of it
    with the same score."""
    found = {number: score for number in group.runs if (score := _teachers_score(runs[number].results)) is not None}
    if best.best not in found or max(found.values()) - min(found.values()) < ALIKE:
        return []
    return [
        f"The teachers of these runs are not equally good: their macro scores are {min(found.values()):.1f} to "
        f"{max(found.values()):.1f}, and {found[best.best]:.1f} in the run of the choice. Each percentage is of the "
        "teacher of its own run, so compare the scores of the students too."
    ]


def _teachers_score(results: Results) -> float | None:
    """The macro score of a run's teacher over the tasks of the headline; None without one."""
    apart = model_rows.outside(results)
    counted = [score for task, score in model_rows.teacher_scores(results).items() if task not in apart]
    return fmean(counted) if counted else None


def _students(runs: Sequence[Run], variants: Sequence[Variant], group: Group, ask: Ask) -> list[str]:
    """A sentence on the best student, where the choice is the teacher in another scheme; empty without students."""
    students = [each for each in variants if each.first.role == "student" and not _own(runs, each)]
    relaxed = replace(ask, least=0.0)
    fitting, others = offered(students, group, ask), offered(students, group, relaxed)
    if not others:
        return []
    best = (fitting or others)[0]
    start = "Of the students" if fitting else f"No student does; of the students{_conditions(relaxed, '')}"
    judged = _apart(best, ask) if ask.least else None
    there = f", with {verdict.percent(judged.value, ask.least)} on the development rows" if judged else ""
    named = f"{best.name}{_where(runs, best, group)} is the {GOALS[ask.goal][1]}{there}"
    return [f"{start}, {named}: it retains {numbers(best, group, ask)}."]


def _what(ask: Ask) -> str:
    return "of what the teacher's score has above chance" if ask.above else "of the teacher's score"


def _apart(variant: Variant, ask: Ask) -> Value | None:
    """What a variant retains on the development rows, if choices are made there."""
    return variant.development_above if ask.above else variant.development


def _rows(variant: Variant, ask: Ask) -> str:
    """` on the development rows`, if choices are made there; else an empty text."""
    return " on the development rows" if _apart(variant, ask) else ""


def _there(variant: Variant, ask: Ask) -> str:
    """The same, with what the variant retains: ` on the development rows (98.0% there)`."""
    judged = _apart(variant, ask)
    return f"{_rows(variant, ask)} ({verdict.percent(judged.value, ask.least)} there)" if judged else ""


def _conditions(ask: Ask, all_of: str, rows: str = "") -> str:
    """`rows`: where what a variant retains is judged, as from `_rows` or `_there`, if it is said."""
    parts = [f"retain at least {ask.least:g}%{rows}"] if ask.least else []
    parts += [f"take at most {ask.ms:g} ms"] if ask.ms is not None else []
    parts += [f"have at most {ask.mib:g} MiB"] if ask.mib is not None else []
    return f"{all_of} that {' and '.join(parts)}" if parts else ""


def _chosen(runs: Sequence[Run], variant: Variant, group: Group, ask: Ask) -> str:
    over = model_rows.reference(runs[group.runs[0]].results)
    by_score = ask.least > 0 or ask.goal in ("retained", "above_chance")
    apart = _there(variant, ask) if by_score else ""
    best = f"{GOALS[ask.goal][1]}{'' if ask.least else apart}{_conditions(ask, ' of the variants', apart)}"
    # On the rows by which it was chosen, the best of many is too good for a test.
    tested = bool(ask.least and apart) and not ask.above and len(variant.runs) == 1
    test = verdict.keeps(variant.first, ask.least) if tested else ""
    fast = variant.speedup[group.input or ""]
    same = " This is no measurable speedup: the interval includes 1." if no_difference(fast) else ""
    slower = "slower than your model, and " if ask.goal == "speedup" and fast.value < 1 and not same else ""
    rows = ""
    if by_score:
        seen = verdict.known_rows(runs[variant.best].results)
        rows = seen if apart else f"It was chosen {verdict.SAME_SCORES}."
    return (
        f"Ship {_called(runs, variant)}{_where(runs, variant, group)}, {slower}the {best}: it retains "
        f"{numbers(variant, group, ask)} the speed of {over} ({_size_and_time(variant, group)} with {group.input})."
        f"{same}{test} {rows}"
    ).rstrip()


def numbers(variant: Variant, group: Group, ask: Ask) -> str:
    """`98.5% (97.1 to 100.0) of the teacher's score at 7.94x (7.53 to 8.37)`."""
    kept, fast = variant.kept(ask.above), variant.speedup[group.input or ""]
    retained = f"{verdict.percent(kept.value, ask.least)}{_ends(kept, 1)}" if kept else "an unknown share"
    return f"{retained} {_what(ask)} at {fast.value:.2f}x{_ends(fast, 2)}"


def no_difference(speed: Value) -> bool:
    """Whether the interval of a speedup includes 1."""
    return speed.interval is not None and speed.interval[0] <= 1 <= speed.interval[1]


def near_chance(runs: Sequence[Results]) -> list[str]:
    """A sentence on the tasks on which a retained share says little; empty where there are none."""
    tasks = dict.fromkeys(task for results in runs for task in results.near_chance or ())
    return [f"Your model is near chance on {', '.join(tasks)}: a share of that says little."] if tasks else []


def _own(runs: Sequence[Run], variant: Variant) -> bool:
    """Whether a variant is the teacher itself, which a run without a student reports in the student's place."""
    first = variant.first
    return first.role == "student" and is_teacher(runs[variant.best].results, first)


def _called(runs: Sequence[Run], variant: Variant) -> str:
    return f"teacher, {model_rows.variant(variant.first)}" if _own(runs, variant) else variant.name


def _where(runs: Sequence[Run], variant: Variant, group: Group) -> str:
    """The run that a variant is from, where there are several."""
    folder = runs[variant.best].folder
    if len(variant.runs) > 1:
        scored = sum(model_rows.retained(model) is not None for model in variant.models)
        failed = "" if scored == len(variant.runs) else f" of {len(variant.runs)}, in the others it failed"
        mean = f"mean of {scored} seeds" if scored > 1 else "1 seed"
        return f" ({mean}{failed}; {folder} retains the most)"
    return f" ({folder})" if len(group.runs) > 1 else ""


def _ends(value: Value, digits: int) -> str:
    """The 95% interval, of several seeds over rows and seeds; where that is unknown, the ends of their values."""
    if value.interval is None:
        return ""
    low, high = value.interval
    return f" ({'seeds ' if value.spread else ''}{low:.{digits}f} to {high:.{digits}f})"


def _none(runs: Sequence[Run], variants: Sequence[Variant], group: Group, ask: Ask) -> list[str]:
    """Sentences that no variant meets the conditions and, for each condition, on the nearest variant that meets the
    others."""
    if not (every := offered(variants, group, Ask(0.0, ask.above))):
        return [f"No variant has both a speed and a share {_what(ask)}, so there is no choice."]
    near = [_nearest(runs, variants, group, *each, ask.least) for each in _relaxed(ask)]
    return [
        f"There are no variants{_conditions(ask, '', _rows(every[0], ask))}.",
        *(sentence for sentence in near if sentence),
    ]


def _relaxed(ask: Ask) -> Iterator[tuple[Ask, str]]:
    """Without one of the conditions, and the word for the variant that comes nearest to it."""
    if ask.least:
        yield replace(ask, least=0.0, goal="above_chance" if ask.above else "retained"), "retains the most"
    if ask.ms is not None:
        yield replace(ask, ms=None, goal="speedup"), "is the fastest"
    if ask.mib is not None:
        yield replace(ask, mib=None, goal="size"), "is the smallest"


def _nearest(runs: Sequence[Run], variants: Sequence[Variant], group: Group, ask: Ask, word: str, least: float) -> str:
    name, limited = group.input or "", ask.ms is not None or ask.mib is not None or ask.goal == "size"
    # Without a limit that it meets, the teacher in a slower form is no answer.
    found = [each for each in offered(variants, group, ask) if limited or _gains(each, name, Ask(0.0))]
    if not found:
        return ""
    best, whole = found[0], replace(ask, least=least)
    there = _there(best, whole) if ask.goal in ("retained", "above_chance") else ""
    named = f"{_called(runs, best)}{_where(runs, best, group)}"
    return (
        f"Of those{_conditions(ask, '', _rows(best, ask)) or ' measured'}, {named} {word}{there}: "
        f"it retains {numbers(best, group, whole)} ({_size_and_time(best, group)})."
    )


def _size_and_time(variant: Variant, group: Group) -> str:
    known = [f"{time_in_ms(variant.ms[group.input])} ms"] if group.input in variant.ms else []
    return ", ".join([*known, *([f"{variant.mib:.1f} MiB"] if variant.mib is not None else [])])


def compared(runs: Sequence[Run], a: Variant, b: Variant, above: bool) -> str:
    """Whether the scores of two variants differ: by the paired tests of the runs that have both, else by their
    intervals."""
    shared = [runs[i].results for i in sorted({*a.runs} & {*b.runs})]
    found = [test for results in shared if (test := verdict.between(results, a.first, b.first))]
    if len(found) == 1 and len(a.runs) == 1:
        return verdict.shown(found[0])
    values = (a.kept(above), b.kept(above))
    if found:
        points = ", ".join(f"{test.difference:+.1f}" for test in found)
        differ = sum(test.distinguishable for test in found)
        return f"their scores differ in {differ} of {len(found)} runs by the paired test ({points} points)"
    if any(value and value.spread for value in values):
        return "no paired test of the two is stored"
    ends = [value.interval if value else None for value in values]
    if ends[0] is None or ends[1] is None:
        return "whether their scores differ was not tested"
    if ends[0][0] <= ends[1][1] and ends[1][0] <= ends[0][1]:
        return "no paired test of the two is stored, and their intervals overlap, so no difference in score is shown"
    return "no paired test of the two is stored; their intervals do not overlap"
