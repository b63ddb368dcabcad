"""Many runs in one table and one figure: every student and baseline.

Runs that differ only in their seed, and in versions of packages, are one row: their mean, the interval of retained %
over rows and seeds, and the values of the runs.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType

from distill.config.free import FREE
from distill.config.schemes import packages
from distill.evaluation.record import Interval
from distill.evaluation.results import Model, Results, known
from distill.report import averages, figure, headline, model_rows, same_tasks
from distill.report.model_rows import Key
from distill.report.seeds import FEW, over_seeds
from distill.report.seeds import shown as shown_over
from distill.report.table import Row, Table
from distill.report.timed import at, reported_input
from distill.runtime.versions import PACKAGES

T = TypeVar("T")

OF_THE_REPORT = ("pipeline=", "stages.evaluate.")
"""Settings that a legend leaves out."""
_OF_NO_ROW = re.compile(r"stages\.evaluate\.((baseline|self_trained|pruned|quantized)=null$|shapes=|repeats=)")
"""Settings of the evaluation that leave models out or change how times are measured, but not what a row stands for. A
setting that names a step does: `stages.evaluate.student=prune` calls the model that was cut the student."""
LONGEST = 44
"""Characters of the name of a run in a legend."""
_COMMIT = "commit"
"""Recorded apart from the version of distill that contains it."""


@dataclass(frozen=True)
class Entry:
    """One row of the table: a variant of a model, in all runs that are averaged."""

    series: int
    settings: str
    models: list[Model]
    runs: list[Results]


def versioned() -> tuple[str, ...]:
    """Facts about a run that are versions. Runs that differ in them are averaged, with a note."""
    return tuple(dict.fromkeys(("distill", "python", *PACKAGES, *packages())))


def settings(results: Results) -> str:
    """Recipe and overrides, without the seed and settings that do not change what is trained."""
    return _text(results, _overrides(results))


def trained(results: Results) -> str:
    """As `settings`, without those of the evaluation that do not change what a row stands for: runs that compare other
    models with the same student are seeds of one another."""
    return _text(results, [word for word in _overrides(results) if not _OF_NO_ROW.match(word)])


def _overrides(results: Results) -> list[str]:
    try:
        words = shlex.split(results.command)
    except ValueError:  # a quote that is not closed
        words = [word.strip("'\"") for word in results.command.split()]
    left_out = {"recipe", "seed", *FREE} - {"threads"}  # on which times depend
    named = [word.lstrip("+") for word in words if "=" in word and not word.startswith("-")]
    return sorted(word for word in named if word.partition("=")[0] not in left_out and not word.startswith("hydra."))


def _text(results: Results, overrides: Sequence[str]) -> str:
    return " ".join(" ".join([results.recipe, *overrides]).split()) or "-"


def grouped(runs: Sequence[Results], name: Callable[[Results], str] = trained) -> list[tuple[str, list[Results]]]:
    """Runs of one name that differ only in their seed and in versions of packages, together in the order of the seeds;
    and the name of each group: `settings` where several groups have the same.

    The machine and the fingerprints of data, teacher and tokenizer must agree. Where `limit.examples` samples training
    rows by the seed, the fingerprint of the tasks follows from it. The groups do not depend on the order of `runs`.
    """

    def key(run: Results) -> str:
        sampled = any(row.split == "train" and row.limited for row in run.coverage)
        left_out = (*versioned(), _COMMIT, *(("tasks",) if sampled else ()))
        facts = {fact: value for fact, value in _facts(run).items() if fact not in left_out}
        return json.dumps([name(run), facts, run.teacher_name, bool(run.smoke)], sort_keys=True)

    found = [sorted(part, key=lambda run: run.seeds) for group in by(runs, key) for part in _of_seeds(group)]
    count = Counter(name(group[0]) for group in found)
    return [(name(group[0]) if count[name(group[0])] == 1 else settings(group[0]), group) for group in found]


def by(items: Iterable[T], key: Callable[[T], str | None]) -> list[list[T]]:
    """The items with the same key together, in their order."""
    groups: dict[str | None, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def _of_seeds(group: list[Results]) -> list[list[Results]]:
    """The runs of a group that are averaged. Of a seed that occurs twice, those of the same settings alone; where it
    still does, something else differs between the runs, so nothing is averaged."""
    if _once(group):
        return [group]
    return [part for same in by(group, settings) for part in ([same] if _once(same) else [[run] for run in same])]


def _once(group: Sequence[Results]) -> bool:
    seeds = [seed for run in group for seed in run.seeds]
    return len(seeds) == len({*seeds})


def _facts(run: Results) -> dict[str, Any]:
    """Machine, versions and fingerprints of a run; of distill, the commit too where it is recorded."""
    return {"distill": run.version, **run.environment, **(run.fingerprints or {})}


def different_versions(name: str, runs: Sequence[Results]) -> list[str]:
    """The note on averaged runs that were made with different versions; empty if all versions agree."""
    versions = {fact: [str(_facts(run).get(fact) or "absent") for run in runs] for fact in versioned()}
    differing = [
        f"{fact} ({', '.join(dict.fromkeys(of_fact))})" for fact, of_fact in versions.items() if len(set(of_fact)) > 1
    ]
    return [f"{name}: its runs were made with different versions of {', '.join(differing)}."] if differing else []


def entries(runs: Sequence[Results], name: Callable[[Results], str] = trained) -> list[Entry]:
    """Students and baselines, grouped over seeds. `name`: of runs with the same models, the same."""
    shown: list[Entry] = []
    for series, (title, group) in enumerate(grouped(runs, name)):
        for models, of_runs in variants(group):
            if models[0].role not in ("teacher", "member"):
                shown.append(Entry(series, title, models, of_runs))
    return shown


def variants(runs: Sequence[Results]) -> list[tuple[list[Model], list[Results]]]:
    """The rows of each variant in the runs that have it, with retained % over the same tasks, and these runs."""
    found: dict[tuple[str, ...], tuple[list[Model], list[Results]]] = {}
    apart = same_tasks.left_out(runs)
    for run in runs:
        for model in run.models:
            key = (model.name, model.role, model.backend, model.scheme, str(model.target))
            models, of_runs = found.setdefault(key, ([], []))
            models.append(same_tasks.without(model, run, apart))
            of_runs.append(run)
    return list(found.values())


_VALUES: dict[Key, Callable[[Model], float | None]] = {
    "retained": model_rows.retained,
    "above_chance": model_rows.above_chance,
    "speedup": model_rows.speedup,
}


def values(numbers: Iterable[float | UnsetType | None]) -> list[float]:
    """The numbers that were measured."""
    return [value for value in numbers if value is not None and value is not UNSET]


def measured(models: Iterable[Model], key: Key) -> tuple[list[float], list[Interval | None]]:
    """The values of the models that have one, and their 95% intervals. Those of speedups are over rounds: of several
    runs they are left out, because their values differ for the same reason."""
    have = [model for model in models if _VALUES[key](model) is not None]
    ends = [model_rows.interval(model, key) for model in have]
    return values(map(_VALUES[key], have)), ends if key != "speedup" or len(have) == 1 else []


def cell(models: Sequence[Model | None], key: Key) -> str:
    """A number of a variant over its runs, see `seeds.shown`. None for a run without the model."""
    form, unit = (".2f", "x") if key == "speedup" else (".1f", "")
    numbers = [None if model is None else _VALUES[key](model) for model in models]
    return shown_over(numbers, measured([model for model in models if model is not None], key)[1], form, unit)


def around(numbers: Sequence[float], ends: Sequence[Interval | None]) -> tuple[float, Interval | None]:
    """Mean, and the ends of its bar in a picture: the 95% interval over rows and seeds, or of several runs without one
    the lowest and the highest value."""
    interval = over_seeds(numbers, ends)
    return fmean(numbers), interval or ((min(numbers), max(numbers)) if len(numbers) > 1 else None)


def _failed(entry: Entry) -> bool:
    return any(m.failed for m in entry.models) and all(model_rows.retained(m) is None for m in entry.models)


def _parameters(entry: Entry) -> str:
    """Smallest to largest: runs that prune to a speed may end with different shapes."""
    counts = sorted(values([m.parameters for m in entry.models]))
    ends = dict.fromkeys(f"{count / 1e6:.2f}" for count in (counts[:1] + counts[-1:]))
    return f"{' to '.join(ends)} M" if ends else "-"


def names(shown: Sequence[Entry]) -> tuple[dict[str, str], str]:
    """Settings of each run -> its recipe and the settings that not all runs share; and the settings that all share."""
    every = [entry.settings.split() for entry in shown]
    common = [word for word in (every[0][1:] if every else []) if all(word in words for words in every)]
    short = {" ".join(words): " ".join(word for word in words if word not in common) for words in every}
    return short, " ".join(common)


def plain_name(run: str) -> str:
    """Recipe and overrides for a legend: `prune importance@stages.prune.importance=taylor` is `importance taylor`."""
    recipe, *overrides = run.split()
    short = [(word.partition("=")[0].rpartition(".")[2], word.partition("=")[2].strip("[]")) for word in overrides]
    return ", ".join(f"{key} {value.replace(',', ', ')}" for key, value in short) or f"recipe {recipe}"


def common_settings(shown: Sequence[Entry]) -> list[str]:
    """The note on the settings that all runs share."""
    _, common = names(shown)
    return [f"Settings of every run: {common}."] if common else []


def table(shown: Sequence[Entry]) -> Table:
    """A row for each entry."""
    above = any(model_rows.above_chance(m) is not None for entry in shown for m in entry.models)
    columns = (
        "#",
        "Run",
        "Model",
        "Backend",
        "Scheme",
        "Retained %",
        *(["Above chance %"] if above else []),
        f"Speedup{at(reported_input(run) for entry in shown for run in entry.runs)}",
        "Average",
        "Average of",
        "Parameters",
        "Seeds",
    )
    rows: list[Row] = []
    remarks: list[str] = []
    short, _ = names(shown)
    for index, entry in enumerate(shown, 1):
        first = entry.models[0]
        rows.append(
            (
                str(index),
                short[entry.settings],
                first.name,
                first.backend,
                first.scheme,
                "failed" if _failed(entry) else cell(entry.models, "retained"),
                *([cell(entry.models, "above_chance")] if above else []),
                cell(entry.models, "speedup"),
                shown_over([known(m.macro) for m in entry.models]),
                ", ".join(dict.fromkeys(map(averages.average_name, entry.runs))),
                _parameters(entry),
                ", ".join(str(seed) for run in entry.runs for seed in run.seeds),
            )
        )
        remarks += [f"#{index} failed: {m.failed}" for m in entry.models if m.failed]
        if model_rows.where(entry.runs[0], first):
            remarks.append(f"#{index} ran on the CPU, not on the {entry.runs[0].gpu}.")
    references = dict.fromkeys(model_rows.reference(run) for entry in shown for run in entry.runs)
    over = " or ".join(references or [model_rows.REFERENCE]).replace("the teacher's", "that teacher's")
    notes = [
        *common_settings(shown),
        "One run: value [95% interval]. Several seeds: mean, the 95% interval of retained % over rows and seeds "
        "together, and in parentheses the value of each run, in the order of the seeds (- for a run without one), or "
        f"of more than {FEW} the lowest and the highest.",
        "Retained %: the model's macro score as a percentage of the score of its run's teacher. Speedup: over "
        f"{over}, on the machine of the run; shapes such as 8x128 are batch x length. "
        "Compare rows only if their runs have the same teacher and average the same tasks.",
        *(note for name, runs in _groups(shown) for note in different_versions(short[name], runs)),
        *(note for name, runs in _groups(shown) for note in same_tasks.note(short[name], runs)),
        *dict.fromkeys(remarks),
    ]
    return Table("Every run", columns, rows, 5, notes, [entry.models[0].role for entry in shown])


def _groups(shown: Sequence[Entry]) -> list[tuple[str, list[Results]]]:
    """Settings and runs of each series."""
    series: dict[int, tuple[str, dict[int, Results]]] = {}
    for entry in shown:
        series.setdefault(entry.series, (entry.settings, {}))[1].update((id(run), run) for run in entry.runs)
    return [(name, list(runs.values())) for name, runs in series.values()]


def points(shown: Sequence[Entry]) -> list[figure.Point]:
    """A point for each entry with a speedup and a retained %. Colours are groups of runs; of one group, backends.

    Of several groups, only the students that no other one in the picture beats have a label.
    """
    short, _ = names(shown)
    legend = _legend(list(short.values()))
    several, drawn = len(short) > 1, dict[int, list[figure.Point]]()
    for entry in shown:
        across, along = measured(entry.models, "speedup"), measured(entry.models, "retained")
        if across[0] and along[0]:
            (x, x_ends), (y, y_ends) = around(*across), around(*along)
            model, shape = entry.models[0], reported_input(entry.runs[0])
            group = legend[short[entry.settings]] if several else model.backend
            point = figure.Point(label(entry), model.role, x, y, x_ends, y_ends, group, shape)
            drawn.setdefault(entry.series, []).append(point)
    placed = [point for series in drawn.values() for point in figure.in_front(series)]
    if not several:
        return placed
    best = figure.unbeaten(placed)
    return [
        replace(point, label=point.label if point in best else "", line=point.line and f"{point.line} of {point.group}")
        for point in placed
    ]


def _legend(runs: Sequence[str]) -> dict[str, str]:
    """Name of each run -> a plain one of limited length, which begins with the settings that the fewest runs have.
    Settings of the evaluation are left out.
    """
    count = Counter(word for run in runs for word in run.split())

    def plain(run: str) -> str:
        recipe, *overrides = run.split()
        kept = sorted((word for word in overrides if not word.startswith(OF_THE_REPORT)), key=count.__getitem__)
        name = plain_name(" ".join([recipe, *kept]))
        return name if len(name) <= LONGEST else f"{name[: LONGEST - 3].rstrip(', ')} ..."

    named = [plain(run) for run in runs]
    alike, numbered = Counter(named), enumerate(named, 1)
    unique = [f"{name} (run {number})" if alike[name] > 1 else name for number, name in numbered]
    return dict(zip(runs, unique, strict=True))


def label(entry: Entry) -> str:
    """Target and variant of its models."""
    model = entry.models[0]
    return (f"{model.target}, " if model.target else "") + model_rows.variant(model)


def headlines(runs: Sequence[Results]) -> list[str]:
    """The headline of each run, preceded by its settings."""
    return [f"{settings(run)}, seed {', '.join(map(str, run.seeds))}: {headline.headline(run)}" for run in runs]
