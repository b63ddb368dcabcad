"""The data of the page: what its script sorts, filters and draws. Numbers have five significant digits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from distill.config.backends import BACKENDS
from distill.errors import visible
from distill.report import figure, headline, overview
from distill.report.choose import Ask, least_of, verdict
from distill.report.loading import loading
from distill.report.schema import Results
from distill.report.variants import Form, Group, Run, Value, forms, groups, inputs, mean_of

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
_DETAILS = ("requests", "recall", "score_ci95", "calibration", "by_length", "near_constant", "energy_missing", "failed")
"""Facts of a model that are shown for the first of several seeds."""
_ROWS_OF_MANY = 10
"""Disagreements of each task that a page on several runs contains."""


def page_data(runs: Sequence[Run]) -> dict[str, Any]:
    """Lists `groups`, `runs` and `forms`, which refer to each other by their index, and the colours of backends."""
    every, named = forms(runs), groups(runs)
    short, common = overview.names([overview.Entry(0, form.settings, [], []) for form in every])
    data = {
        "smoke": any(run.results.get("smoke") for run in runs),
        "common": common if len(runs) > 1 else "",
        "colours": {"light": _colours(figure.COLOURS), "dark": _colours(figure.ON_DARK)},
        "groups": [_group(runs, number, group, every) for number, group in enumerate(named)],
        "runs": [_run(run, len(runs) > 1) for run in runs],
        "forms": [_form(runs, form, short[form.settings]) for form in every],
    }
    rounded: dict[str, Any] = _rounded(data)
    return rounded


def _colours(palette: Sequence[str]) -> dict[str, str]:
    """Backend -> its colour, in the order of the palette."""
    places = sorted((b.colour, b.name) for b in BACKENDS.values() if b.colour is not None)
    return {name: palette[place % len(palette)] for place, name in places}


def _rounded(value: Any) -> Any:
    """The value with rounded numbers, null for one that is not finite, and texts that change nothing beside them."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(key): _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return value


def _group(runs: Sequence[Run], number: int, group: Group, every: Sequence[Form]) -> dict[str, Any]:
    members = [form for form in every if form.group == number]
    results = [runs[i].results for i in group.runs]
    least = least_of(results)
    found = verdict(runs, members, group, Ask(least))
    return {
        "title": group.title,
        "tasks": list(group.tasks),
        "input": group.input,
        "reference": headline.reference(results[0]),
        "inputs": inputs(members),
        "least": least,
        "sentences": found["sentences"],
        "chosen": None if found["form"] is None else every.index(found["form"]),
        "loading": found["loading"],
        "chance": mean_of([chance_retained(one) for one in results]),
        "near_chance": list(dict.fromkeys(task for one in results for task in one.get("near_chance", []))),
        "teacher": teacher_scores(results),
        "detectable": next((one["detectable"] for one in results if one.get("detectable")), None),
        "without": headline.exclusion(results[0]),
        "older_rules": sum("older_rules" in one for one in results),
    }


def task_means(scores: dict[str, dict[str, float]]) -> dict[str, float]:
    """Task -> mean of its metrics, in percent."""
    return {task: fmean(metrics.values()) for task, metrics in scores.items() if metrics}


def teacher_scores(results: Sequence[Results]) -> dict[str, float]:
    """Task -> mean over runs of the score of the teacher's first scored form."""
    found = [scores for one in results if (scores := _teacher(one))]
    return {
        task: fmean(row[task] for row in found if task in row) for task in dict.fromkeys(t for r in found for t in r)
    }


def _teacher(results: Results) -> dict[str, float]:
    scored: dict[str, dict[str, float]] = next(
        (m["scores"] for m in headline.of_role(results, "teacher") if m.get("scores")), {}
    )
    return task_means(scored)


def chance_retained(results: Results) -> float | None:
    """Retained % of the best constant predictor; None where chance or the teacher was not measured.

    The same ratio of macro scores as a model's retained %, over the tasks of the headline of which it is known.
    """
    chance, teacher = task_means(results.get("chance") or {}), _teacher(results)
    apart = headline.outside(results)
    tasks = [task for task in chance if task in teacher and task not in apart]
    if not tasks or not (whole := sum(teacher[task] for task in tasks)):
        return None
    return 100 * sum(chance[task] for task in tasks) / whole


def _run(run: Run, many: bool) -> dict[str, Any]:
    results = run.results
    rows = list(run.rows)
    counts = {
        task: len([row for row in rows if row["task"] == task]) for task in dict.fromkeys(r["task"] for r in rows)
    }
    if many:
        rows = [row for task in counts for row in [r for r in rows if r["task"] == task][:_ROWS_OF_MANY]]
    return {
        "folder": run.folder,
        "recipe": results["recipe"],
        "seeds": results["seeds"],
        "command": " ".join(results["command"].split()),
        "stages": results["stages"],
        "tests": [
            [
                _key(row["a"]),
                _key(row["b"]),
                row["scope"],
                row["difference"],
                row["ci95"],
                row["p"],
                row["distinguishable"],
            ]
            for row in results.get("tests", [])
        ],
        "waterfall": results.get("waterfall", []),
        "disagreements": rows,
        "disagreeing": counts,
    }


def _key(model: dict[str, Any]) -> str:
    return "|".join((model["name"], model["scheme"], model["backend"]))


def _value(value: Value | None) -> list[Any] | None:
    """[value, low, high, whether the interval is one standard deviation over seeds]."""
    return None if value is None else [value.value, *(value.interval or (None, None)), value.spread]


def _form(runs: Sequence[Run], form: Form, settings: str) -> dict[str, Any]:
    first = form.first
    scored = [model["scores"] for model in form.models if model.get("scores")]
    return {
        **{key: first[key] for key in ("name", "role", "step", "target", "scheme", "backend")},
        "key": _key(first),
        "group": form.group,
        "runs": form.runs,
        "settings": settings,
        "raw": _value(form.retained),
        "above": _value(form.above_chance),
        "speedup": {name: _value(value) for name, value in form.speedup.items()},
        "ms": form.ms,
        "mib": form.mib,
        **{key: mean_of([model.get(key) for model in form.models]) for key in _NUMBERS},
        **{key: first[key] for key in _DETAILS if first.get(key)},
        "scores": _mean_scores(scored),
        "loading": loading(runs[form.runs[0]], first),
    }


def _mean_scores(scored: Sequence[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Task -> metric -> mean over seeds."""
    tasks: dict[str, dict[str, list[float]]] = {}
    for scores in scored:
        for task, metrics in scores.items():
            for metric, value in metrics.items():
                tasks.setdefault(task, {}).setdefault(metric, []).append(value)
    return {task: {metric: fmean(values) for metric, values in metrics.items()} for task, metrics in tasks.items()}
