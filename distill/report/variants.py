"""The variants of many runs as flat records, which a page, a choice and a CSV file all show.

A variant is a model in one scheme on one backend. Runs that differ only in their seed give one variant, whose
numbers are means.
"""

from __future__ import annotations

import functools
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from msgspec import UnsetType

from distill.config.loads import SINGLE_TEXTS
from distill.evaluation.record import Interval
from distill.evaluation.results import Disagreement, Model, Results, known
from distill.report import kept, model_rows, overview
from distill.report.timed import median, milliseconds, reported_input, shapes

CHOSEN = ("student", "teacher")
"""Models that are offered: baselines are controls, and pruned models are not trained yet."""


@dataclass(frozen=True)
class Run:
    """A finished run. `folder` is the path that a reader of the page types; `rows`: disagreements with the teacher."""

    folder: str
    results: Results
    rows: Sequence[Disagreement] = ()

    @functools.cached_property
    def input(self) -> str | None:
        """The input of the reported speedup."""
        return reported_input(self.results)

    @functools.cached_property
    def fastest(self) -> dict[str, float]:
        """Input -> milliseconds of the teacher's fastest float32 variant."""
        return fastest_teacher(self.results)


@dataclass(frozen=True)
class Value:
    """A number with its 95% interval; `spread` is true where it is the lowest and the highest value over seeds."""

    value: float
    interval: Interval | None = None
    spread: bool = False


@dataclass(frozen=True)
class Variant:
    """A model in one scheme on one backend, in all runs that differ only in their seed.

    Percentages are of the teacher of its runs, speedups are over that teacher's fastest float32 variant.
    """

    group: int
    """Variants are compared within a group: the same tasks, rows, teacher and machine."""
    runs: tuple[int, ...]
    models: tuple[Model, ...]
    settings: str
    retained: Value | None
    above_chance: Value | None
    development: Value | None
    """Retained percent on the rows on which choices are made; None where a variant of its group has none."""
    development_above: Value | None
    """The same of the score above chance."""
    speedup: dict[str, Value]
    """Input -> speedup."""
    ms: dict[str, float]
    """Input -> median milliseconds."""
    mib: float | None

    @property
    def first(self) -> Model:
        return self.models[0]

    @property
    def name(self) -> str:
        return f"{self.first.name}, {model_rows.variant(self.first)}"

    def kept(self, above: bool) -> Value | None:
        """Retained percent: of the teacher's score or, with `above`, of its score minus chance."""
        return self.above_chance if above else self.retained

    def judged(self, above: bool) -> Value | None:
        """What a choice is made by: `kept` on the development rows, if it is known there."""
        return (self.development_above if above else self.development) or self.kept(above)

    @functools.cached_property
    def best(self) -> int:
        """The run of which a user takes the model: the first of those that retain the most, by the rows on which
        choices are made."""
        kept = [
            model_rows.development(model) if self.development else model_rows.retained(model) for model in self.models
        ]
        return self.runs[max(range(len(kept)), key=lambda place: (kept[place] or 0.0, -place))]

    @property
    def taken(self) -> Model:
        """The model of that run: the first one may have failed."""
        return self.models[self.runs.index(self.best)]


@dataclass(frozen=True)
class Group:
    """Runs whose variants may be compared."""

    tasks: tuple[str, ...]
    teacher: str
    machine: str
    runs: tuple[int, ...]
    input: str | None
    """The input of its speedups, unless a reader picks another."""

    @property
    def title(self) -> str:
        count = model_rows.counted(len(self.runs), "run")
        return f"{', '.join(self.tasks) or 'no task'}; teacher {self.teacher}; {self.machine}; {count}"


def groups(runs: Sequence[Run]) -> list[Group]:
    """Comparable runs together: groups with runs under the current rules first, then the largest."""
    found = overview.by(range(len(runs)), lambda index: json.dumps(_comparable(runs[index].results)))
    apart = [part for members in found for part in _of_same_rows(runs, members)]
    made = [_group([runs[i] for i in members], members) for members in apart]
    current = [not run.results.older_rules for run in runs]
    return sorted(made, key=lambda group: (not any(current[i] for i in group.runs), -len(group.runs)))


def _of_same_rows(runs: Sequence[Run], members: Sequence[int]) -> list[list[int]]:
    """Runs whose reported rows and given teacher have the same hashes. Runs of older versions do not state them: with
    one of these, all stay together."""
    hashes = {number: _hashes(runs[number].results) for number in members}
    return [list(members)] if None in hashes.values() else overview.by(members, hashes.__getitem__)


def _hashes(results: Results) -> str | None:
    """The hashes of a run's reported rows, and of its given teacher; None if they are not known."""
    openings = known(results.openings) or []
    rows = {f"{opening.task} {opening.split}": opening.fingerprint for opening in openings}
    teacher = (results.fingerprints or {}).get("teacher")
    return json.dumps([rows, teacher], sort_keys=True) if rows and teacher else None


def _comparable(results: Results) -> list[Any]:
    facts = results.environment
    rows = sorted([row.task, row.split, row.rows] for row in results.coverage if row.split != "train")
    machine = [facts.get(key) for key in ("cpu", "gpu", "threads")]
    # Keys sort the tasks: runs that list the same tasks in another order are compared.
    return [
        sorted(model_rows.task_names(results)),
        sorted(model_rows.outside(results)),
        rows,
        results.teacher_name,
        machine,
        bool(results.smoke),
        results.load,
    ]


def _group(runs: Sequence[Run], members: Sequence[int]) -> Group:
    first = runs[0].results
    machine = f"{first.gpu or first.environment['cpu']}, {model_rows.counted(first.threads, 'thread')}"
    inputs = Counter(run.input for run in runs if run.input)
    return Group(
        tuple(model_rows.task_names(first)),
        first.teacher_name or "-",
        machine,
        tuple(members),
        inputs.most_common(1)[0][0] if inputs else None,
    )


def variants(runs: Sequence[Run]) -> list[Variant]:
    """Every variant of all runs, group by group. A failed one has neither scores nor times."""
    made: list[Variant] = []
    for number, group in enumerate(groups(runs)):
        index = {id(runs[i].results): i for i in group.runs}
        for title, same in overview.grouped([runs[i].results for i in group.runs]):
            for models, of_runs in overview.variants(same):
                made.append(_variant(number, runs, [index[id(results)] for results in of_runs], models, title))
    scored = [variant for variant in made if variant.retained is not None and variant.first.role in CHOSEN]
    without = {variant.group for variant in scored if variant.development is None}
    without_above = {variant.group for variant in scored if variant.development_above is None}
    return [
        replace(
            variant,
            development=None if variant.group in without else variant.development,
            development_above=None if variant.group in without_above else variant.development_above,
        )
        for variant in made
    ]


def fastest_teacher(results: Results) -> dict[str, float]:
    """Input -> milliseconds of the teacher's fastest float32 variant."""
    teachers = [m for m in model_rows.of_role(results, "teacher") if model_rows.float32(m)]
    inputs = [*shapes(results), *([] if results.gpu else [SINGLE_TEXTS])]  # on a GPU 16 bits count too
    times = {name: [t for m in teachers if (t := median(m, name))] for name in inputs}
    return {shape: min(found) for shape, found in times.items() if found}


def speedups(model: Model, run: Run) -> dict[str, Value]:
    """Input -> speedup of a model of a run with its interval.

    Where a run has no speedup with an input, which was measured under older rules, it is the ratio of medians, without
    an interval.
    """
    ways = model.speedup
    ratios = {name: Value(ms / own) for name, ms in run.fastest.items() if (own := median(model, name))}
    if ways and ways.by_input:
        return ratios | {name: Value(row.median, kept.of_rounds(row.ci95)) for name, row in ways.by_input.items()}
    if run.input and ways and ways.best_teacher is not None:
        ratios[run.input] = Value(ways.best_teacher, kept.of_rounds(ways.ci95))
    return ratios


def _variant(group: int, runs: Sequence[Run], places: Sequence[int], models: Sequence[Model], settings: str) -> Variant:
    faster = [speedups(model, runs[place]) for model, place in zip(models, places, strict=True)]
    timed = [milliseconds(model) for model in models]
    return Variant(
        group,
        tuple(places),
        tuple(models),
        settings,
        over_seeds([_value(model_rows.retained(m), model_rows.interval(m, "retained")) for m in models]),
        over_seeds([_value(model_rows.above_chance(m), model_rows.interval(m, "above_chance")) for m in models]),
        over_seeds([_value(model_rows.development(m)) for m in models]),
        over_seeds([_value(model_rows.development(m, above=True)) for m in models]),
        {name: v for name in keys(faster) if (v := over_seeds([row.get(name) for row in faster], of_rows=False))},
        means(timed),
        mean_of([m.size_mib for m in models]),
    )


def keys(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys of all rows, in order."""
    return list(dict.fromkeys(key for row in rows for key in row))


def means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Key -> its mean over the rows that have it."""
    return {key: fmean(row[key] for row in rows if key in row) for key in keys(rows)}


def mean_of(numbers: Iterable[float | UnsetType | None]) -> float | None:
    """The mean of the numbers that were measured; None without one."""
    measured = overview.values(numbers)
    return fmean(measured) if measured else None


def over_seeds(values: Sequence[Value | None], of_rows: bool = True) -> Value | None:
    """A single value unchanged; of several values the mean, and the ends of `overview.around`."""
    measured = [value for value in values if value is not None]
    if len(measured) < 2:
        return measured[0] if measured else None
    intervals = [value.interval for value in measured] if of_rows else []
    middle, ends = overview.around([value.value for value in measured], intervals)
    return Value(middle, ends, None in intervals or not intervals)


def _value(number: float | None, interval: Interval | None = None) -> Value | None:
    return None if number is None else Value(number, interval)


def folder_name(folder: Path) -> str:
    """The path of a folder, relative if it is below the current folder."""
    here, path = Path.cwd(), folder.absolute()
    name = path.relative_to(here).as_posix() if path.is_relative_to(here) else folder.as_posix()
    return os.fsencode(name).decode("utf-8", "backslashreplace")  # a page is UTF-8, and a name may be anything
