"""The data of the page: what its script sorts, filters and draws. Numbers that it compares with limits are whole, and
others have five significant digits.

Of a share near 1, these are the digits of its distance from 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

from distill.config.backends import BACKENDS
from distill.errors import visible
from distill.evaluation.results import Results
from distill.report import figure, kept, model_rows, overview, verdict
from distill.report.choose import Ask, choice, least_of, ranked
from distill.report.itself import is_teacher
from distill.report.loading import loading
from distill.report.variants import CHOSEN, Group, Run, Value, Variant, groups, keys, mean_of, means, variants

_NUMBERS = (
    "parameters",
    "gmacs",
    "throughput_per_second",
    "cold_start_ms",
    "memory_mib",
    "energy_j",
    "cost_per_million",
)
"""Numbers of a model that are shown unchanged; with several seeds, their mean."""
_DETAILS = (
    "requests",
    "from_text",
    "recall",
    "beside",
    "teachers_index",
    "detection",
    "entities",
    "vectors",
    "score_ci95",
    "calibration",
    "by_length",
    "near_constant",
    "energy_missing",
)
"""Facts of a model that are shown for the first of several seeds in which it did not fail."""
_LIMITED = ("raw", "development", "developmentAbove", "above", "speedup", "ms", "mib")
"""Numbers of a variant that decide whether it is offered: 96.9996 is not at least 97."""
_WHOLE = 15
"""Significant digits of these."""
_ROWS_OF_MANY = 10
"""Disagreements of each task that a page on several runs contains."""


def page_data(runs: Sequence[Run]) -> dict[str, Any]:
    """Lists `groups`, `runs` and `variants`, which refer to each other by their index, and the colours of backends."""
    every, named = variants(runs), groups(runs)
    short, common = overview.names([overview.Entry(0, variant.settings, [], []) for variant in every])
    data = {
        "smoke": any(run.results.smoke for run in runs),
        "common": common if len(runs) > 1 else "",
        "colours": {"light": _colours(figure.COLOURS), "dark": _colours(figure.ON_DARK)},
        "groups": [_group(runs, number, group, every) for number, group in enumerate(named)],
        "runs": [_run(run, len(runs) > 1) for run in runs],
        "variants": [
            _variant(runs, variant, short[variant.settings]) | tests
            for variant, tests in zip(every, _tests(runs, every), strict=True)
        ],
    }
    rounded: dict[str, Any] = _rounded(to_builtins(data))
    return rounded


def _colours(palette: Sequence[str]) -> dict[str, str]:
    """Backend -> its colour, in the order of the palette."""
    places = sorted((b.colour, b.name) for b in BACKENDS.values() if b.colour is not None)
    return {name: palette[place % len(palette)] for place, name in places}


def _rounded(value: Any, digits: int = 5) -> Any:
    """The value with rounded numbers, null for one that is not finite, and texts that change nothing beside them."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(key): _rounded(item, _WHOLE if key in _LIMITED else digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item, digits) for item in value]
    if isinstance(value, float):
        near = math.floor(-math.log10(1 - value)) if 0.9 < value < 1 else 0
        return float(f"{value:.{digits + near}g}") if math.isfinite(value) else None
    return value


def _group(runs: Sequence[Run], number: int, group: Group, every: Sequence[Variant]) -> dict[str, Any]:
    members = [variant for variant in every if variant.group == number]
    results = [runs[i].results for i in group.runs]
    least = least_of(results)
    found = choice(runs, members, group, Ask(least))
    places = {id(variant): place for place, variant in enumerate(every)}
    names = keys([variant.speedup for variant in members])
    return {
        "title": group.title,
        "tasks": list(group.tasks),
        "input": group.input,
        "reference": model_rows.reference(results[0]),
        "inputs": names,
        # what is retained -> input -> the variants to draw and to choose from, the best first
        "ranked": {
            share: {
                name: [places[id(variant)] for variant in ranked(members, name, Ask(above=above))] for name in names
            }
            for share, above in (("raw", False), ("above", True))
        },
        "least": least,
        "sentences": found["sentences"],
        "loading": found["loading"],
        "chance": mean_of([chance_retained(one) for one in results]),
        "near_chance": list(dict.fromkeys(task for one in results for task in one.near_chance or ())),
        "teacher": means([model_rows.teacher_scores(one) for one in results]),
        "detectable": next((one.detectable for one in results if one.detectable), None),
        "without": model_rows.exclusion(results[0]),
        "older_rules": sum(bool(one.older_rules) for one in results),
    }


def chance_retained(results: Results) -> float | None:
    """Retained % of the best constant predictor; None where chance or the teacher was not measured.

    The same ratio of macro scores as a model's retained %, over the tasks of the headline of which it is known, without
    those on which the teacher scores 0 or less.
    """
    chance, teacher = model_rows.task_scores(results.chance or {}), model_rows.teacher_scores(results)
    apart = model_rows.outside(results)
    tasks = [task for task in chance if teacher.get(task, 0.0) > 0 and task not in apart]
    return 100 * sum(chance[task] for task in tasks) / sum(teacher[task] for task in tasks) if tasks else None


def _run(run: Run, many: bool) -> dict[str, Any]:
    results = run.results
    rows = list(run.rows)
    counts = dict(Counter(row.task for row in rows))
    if many:
        rows = [row for task in counts for row in [r for r in rows if r.task == task][:_ROWS_OF_MANY]]
    return {
        "folder": run.folder,
        "recipe": results.recipe,
        "seeds": results.seeds,
        "command": " ".join(results.command.split()),
        "stages": results.stages,
        "waterfall": results.waterfall or [],
        "disagreements": rows,
        "disagreeing": counts,
    }


def _tests(runs: Sequence[Run], every: Sequence[Variant]) -> list[dict[str, Any]]:
    """For each variant, `tests`: index of another -> what their test in one run shows; and `ties`: task -> whether its
    score is not distinguishable from the teacher's, for the tasks that were tested."""
    found: list[dict[str, Any]] = [{"tests": {}, "ties": {}} for _ in every]
    places = {
        (run, verdict.identity(model)): place
        for place, variant in enumerate(every)
        for run, model in zip(variant.runs, variant.models, strict=True)
    }
    for number, run in enumerate(runs):
        for test in (way for row in (run.results.tests or ()) for way in (row, verdict.turned(row))):
            a, b = (places.get((number, verdict.identity(model))) for model in (test.a, test.b))
            if a is None or b is None:
                continue  # a stranger's results may name models that they do not have
            if test.scope is None and every[a].runs == (number,):
                found[a]["tests"][str(b)] = verdict.shown(test)
            elif test.scope is not None and every[b].first.role == "teacher":
                found[a]["ties"].setdefault(test.scope, verdict.tied(test))
    return found


def _value(value: Value | None) -> list[Any] | None:
    """[value, low, high, whether these are the lowest and the highest of several seeds]."""
    return None if value is None else [value.value, *(value.interval or (None, None)), value.spread]


def _variant(runs: Sequence[Run], variant: Variant, settings: str) -> dict[str, Any]:
    first = next((model for model in variant.models if not model.failed), variant.first)
    failed = next((model.failed for model in variant.models if model.failed), "")
    itself = first.role == "student" and is_teacher(runs[variant.best].results, first)
    own = {"name": "teacher", "role": "teacher"} if itself else {}
    scored = [model.scores for model in variant.models if model.scores]
    return {
        **{key: getattr(first, key) for key in ("name", "role", "step", "target", "scheme", "backend")},
        **own,
        "offered": first.role in CHOSEN,
        "faster": first.role == "teacher",  # whether it is offered only where it is faster than in float32
        "group": variant.group,
        "runs": variant.runs,
        "settings": settings,
        "raw": _value(variant.retained),
        "development": _value(variant.development),
        "developmentAbove": _value(variant.development_above),
        "above": _value(variant.above_chance),
        "speedup": {name: _value(value) for name, value in variant.speedup.items()},
        "ms": variant.ms,
        "over": kept.short(first).removeprefix(", "),
        "mib": variant.mib,
        **{key: mean_of(getattr(model, key) for model in variant.models) for key in _NUMBERS},
        **{key: value for key in _DETAILS if (value := getattr(first, key))},
        **({"failed": failed} if failed else {}),
        "scores": {task: means([scores[task] for scores in scored if task in scores]) for task in keys(scored)},
        "loading": loading(runs[variant.best], variant.taken),
    }
