"""Models pruned to a predicted speed, over many runs: their shapes, measured speeds and retained %.

Runs that differ only in their seed, and in versions of packages, are one row, as in `distill.report.overview`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np
from msgspec import UNSET

from distill.evaluation.results import Model, Pruned, Results, known
from distill.report import model_rows, same_tasks
from distill.report.footnotes import speed_of
from distill.report.overview import cell, common_settings, different_versions, entries, grouped, names, trained
from distill.report.seeds import shown
from distill.report.table import Row, Table, number


@dataclass(frozen=True)
class Cut:
    """The models that a prune stage made for one target, in all runs that are averaged."""

    run: str
    target: str
    seeds: list[int]
    shapes: list[str]
    predicted: list[float | None]
    measured: list[float | None]
    models: dict[str, dict[int, Model]]
    """The models with a retained %: role ("pruned": before recovery, "student": after it, or "baseline") -> place of
    the run -> model."""
    notes: list[str]
    """On the runs."""


def cuts(runs: Sequence[Results], name: Callable[[Results], str] = trained) -> list[Cut]:
    """All models pruned to a predicted speed, by target, in the variant that the search timed. `name`: as in
    `overview.grouped`."""
    short, _ = names(entries(runs, name))
    every: list[Cut] = []
    for title, group in grouped(runs, name):
        label = short.get(title, title)
        notes = [*different_versions(label, group), *same_tasks.note(label, group)]
        apart = same_tasks.left_out(group)
        of_group: dict[tuple[str, str], Cut] = {}
        for run in group:
            for row in run.pruned:
                if row.predicted_speedup is not UNSET:
                    target = row.target or "-"
                    cut = of_group.setdefault((row.step, target), Cut(label, target, [], [], [], [], {}, notes))
                    _add(cut, run, row, apart)
        every += of_group.values()
    targets = dict.fromkeys(cut.target for cut in every)
    return [cut for target in targets for cut in every if cut.target == target]


def _add(cut: Cut, run: Results, row: Pruned, apart: Sequence[str]) -> None:
    """Add the models of a run. apart: tasks that all runs leave out of retained %."""
    cut.seeds.extend(run.seeds)
    cut.shapes.append(f"{row.layers} x {row.hidden} x {row.ffn}")
    cut.predicted.append(known(row.predicted_speedup))
    cut.measured.append(known(row.measured_speedup))
    kinds = {stage.name: stage.kind for stage in run.stages}
    for model in (same_tasks.without(model, run, apart) for model in run.models):
        as_cut = model.role == "student" and kinds.get(model.step) in ("prune", "vocabulary")
        role = "pruned" if as_cut else model.role
        variant = row.backend or "torch", row.scheme
        if role == "pruned" and variant[0] != "torch":  # models right after pruning are in torch float32 alone
            variant = "torch", "fp32"
        same = (model.target, model.backend, model.scheme) == (row.target, *variant)
        if same and role in ("student", "pruned", "baseline") and model_rows.retained(model) is not None:
            cut.models.setdefault(role, {})[len(cut.shapes) - 1] = model


def _of_seeds(cut: Cut, role: str, key: model_rows.Key = "retained") -> str:
    """A number of each run's model of a role."""
    return cell([cut.models.get(role, {}).get(place) for place in range(len(cut.shapes))], key)


def table(runs: Sequence[Results], name: Callable[[Results], str] = trained) -> Table | None:
    """A row for each target and each group of runs; None if no model was pruned to a predicted speed."""
    every = cuts(runs, name)
    if not every:
        return None
    above = any(model_rows.above_chance(m) is not None for cut in every for m in cut.models.get("student", {}).values())
    rows: list[Row] = [
        (
            cut.target,
            cut.run,
            ", ".join(dict.fromkeys(cut.shapes)),
            shown(cut.predicted, form=".2f", unit="x"),
            shown(cut.measured, form=".2f", unit="x"),
            *(_of_seeds(cut, role) for role in ("pruned", "student", "baseline")),
            *([_of_seeds(cut, "student", "above_chance")] if above else []),
            ", ".join(map(str, cut.seeds)),
        )
        for cut in every
    ]
    columns = (
        "Target",
        "Run",
        "Shape",
        "Predicted speedup",
        "Measured speedup",
        "Before recovery",
        "After recovery",
        "Baseline",
        *(["Above chance, after recovery"] if above else []),
        "Seeds",
    )
    errors = [
        abs(row.predicted_speedup / row.measured_speedup - 1)
        for run in runs
        for row in run.pruned
        if row.predicted_speedup and row.measured_speedup
    ]
    notes = [
        *common_settings(entries(runs, name)),
        "Shape: layers x hidden channels x FFN channels. Predicted and measured speedup: of the variant that the "
        "search timed. Before recovery: retained % directly after pruning, in torch float32. After recovery, baseline: "
        "in the variant that the search timed, after recovery by distillation and after the same number of steps on "
        "labels alone. Several seeds: mean, the 95% interval of retained % over rows and seeds, and each run's value, "
        "in the order of the seeds (- for a run without one).",
        *dict.fromkeys(f"{speed_of(row)}." for run in runs for row in run.pruned if row.predicted_speedup is not UNSET),
        *dict.fromkeys(note for cut in every for note in cut.notes),
    ]
    if errors:
        notes.append(
            f"Relative error of the predicted speedup, over {len(errors)} models: median {100 * median(errors):.1f}%, "
            f"largest {100 * max(errors):.1f}%."
        )
    notes += dict.fromkeys(run.older_rules for run in runs if run.older_rules)
    equal = list(_at_equal_speeds(every))
    return Table("Pruned to a target", columns, rows, 3, [*notes, *equal, *([_NO_TEST] if equal else [])])


_NO_TEST = (
    "Interpolated values are in the order of the table. They have no intervals, and are no test of which way to prune "
    "is better."
)


def _at_equal_speeds(every: Sequence[Cut]) -> Iterator[str]:
    """Sentences on what each group of runs retains at the same measured speed, for every speed that was a target, in
    the order of the table: the best first would be the one that was lucky.

    The measured speeds of several methods differ where their targets are the same.
    """
    speeds = sorted({float(cut.target[:-1]) for cut in every if cut.target.endswith("x")})
    runs = dict.fromkeys(cut.run for cut in every)
    for speed in speeds:
        parts = []
        for role, when in (("pruned", "before recovery"), ("student", "after recovery")):
            kept = {run: _retained_at(speed, [cut for cut in every if cut.run == run], role) for run in runs}
            found = [(value, run) for run, value in kept.items() if value is not None]
            if len(found) > 1:
                parts.append(f"{when} {', '.join(f'{number(value)}% ({run})' for value, run in found)}")
        if parts:
            yield f"At a measured speedup of {speed:g}x, interpolated between the models of a run: {'; '.join(parts)}."


def _retained_at(speed: float, of_run: Sequence[Cut], role: str) -> float | None:
    """The mean over runs of retained % at a measured speed, on the line between the nearest models of each; None beyond
    the slowest and the fastest model of a run."""
    points: dict[int, list[tuple[float, float]]] = {}
    for cut in of_run:
        for place, model in cut.models.get(role, {}).items():
            measured_speed, kept = cut.measured[place], model_rows.retained(model)
            if measured_speed is not None and kept is not None:
                points.setdefault(_seed(cut, place), []).append((measured_speed, kept))
    found = [_between(speed, sorted(of_seed)) for of_seed in points.values()]
    reached = [value for value in found if value is not None]
    return fmean(reached) if reached and len(reached) == len(found) else None


def _seed(cut: Cut, place: int) -> int:
    """What tells the runs of a group apart, in the cuts of all targets."""
    return cut.seeds[place] if len(cut.seeds) == len(cut.measured) else place


def _between(speed: float, found: Sequence[tuple[float, float]]) -> float | None:
    """The value at a speed on the line through points, which are in the order of their speeds."""
    if not found[0][0] <= speed <= found[-1][0]:
        return None
    return float(np.interp(speed, [place for place, _ in found], [kept for _, kept in found]))
