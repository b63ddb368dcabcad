"""Models pruned to a predicted speed, over many runs: their shapes, measured speeds and retained %.

Runs that differ only in their seed, and in versions of packages, are one row, as in `distill.report.overview`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np
from msgspec import UNSET

from distill.evaluation.results import Model, Pruned, Results
from distill.report import figure, headline
from distill.report.footnotes import speed_of
from distill.report.overview import (
    OF_THE_REPORT,
    around,
    cell,
    common_settings,
    different_versions,
    entries,
    grouped,
    measured,
    names,
    plain_name,
    settings,
    values,
)
from distill.report.seeds import shown
from distill.report.table import Row, Table, number


@dataclass(frozen=True)
class Cut:
    """The models that a prune stage made for one target, in all runs that are averaged."""

    run: str
    target: str
    seeds: list[int]
    shapes: list[str]
    predicted: list[float]
    measured: list[float]
    models: dict[str, list[Model]]
    """The models with a retained % by role: "pruned" (before recovery), "student" (after it) and "baseline"."""
    notes: list[str]
    """On the runs."""


def cuts(runs: Sequence[Results]) -> list[Cut]:
    """All models pruned to a predicted speed, by target, in the variant that the search timed."""
    short, _ = names(entries(runs))

    def label(run: Results) -> str:
        return " ".join(word for word in short[settings(run)].split() if not word.startswith(OF_THE_REPORT))

    every: list[Cut] = []
    for group in grouped(runs, label):
        notes = different_versions(label(group[0]), group)
        of_group: dict[tuple[str, str], Cut] = {}
        for run in group:
            for row in run.pruned:
                if row.predicted_speedup is not UNSET:
                    target = row.target or "-"
                    cut = of_group.setdefault((row.step, target), Cut(label(run), target, [], [], [], [], {}, notes))
                    _add(cut, run, row)
        every += of_group.values()
    targets = dict.fromkeys(cut.target for cut in every)
    return [cut for target in targets for cut in every if cut.target == target]


def _add(cut: Cut, run: Results, row: Pruned) -> None:
    cut.seeds.extend(run.seeds)
    cut.shapes.append(f"{row.layers} x {row.hidden} x {row.ffn}")
    cut.predicted.extend(values([row.predicted_speedup]))
    cut.measured.extend(values([row.measured_speedup]))
    kinds = headline.kinds(run)
    for model in run.models:
        as_cut = model.role == "student" and kinds.get(model.step) in ("prune", "vocabulary")
        role = "pruned" if as_cut else model.role
        variant = row.backend or "torch", row.scheme
        if role == "pruned" and variant[0] != "torch":  # models right after pruning are in torch float32 alone
            variant = "torch", "fp32"
        if role not in ("student", "pruned", "baseline") or _variant(model) != (row.target, *variant):
            continue
        if headline.retained(model) is not None:
            cut.models.setdefault(role, []).append(model)


def _variant(model: Model) -> tuple[str | None, str, str]:
    return model.target, model.backend, model.scheme


def _of_seeds(cut: Cut, role: str) -> str:
    """Retained %, with the number of seeds if some runs do not have the model."""
    models, seeds = cut.models.get(role, []), len(set(cut.seeds))
    return cell(models, "retained") + (f", {len(models)} of {seeds} seeds" if 0 < len(models) < seeds else "")


def table(runs: Sequence[Results]) -> Table | None:
    """A row for each target and each group of runs; None if no model was pruned to a predicted speed."""
    every = cuts(runs)
    if not every:
        return None
    above = any(headline.above_chance(m) is not None for cut in every for m in cut.models.get("student", []))
    rows: list[Row] = [
        (
            cut.target,
            cut.run,
            ", ".join(dict.fromkeys(cut.shapes)),
            shown(cut.predicted, form=".2f", unit="x"),
            shown(cut.measured, form=".2f", unit="x"),
            *(_of_seeds(cut, role) for role in ("pruned", "student", "baseline")),
            *([cell(cut.models.get("student", []), "above_chance")] if above else []),
            ", ".join(map(str, sorted(set(cut.seeds)))),
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
        *common_settings(entries(runs)),
        "Shape: layers x hidden channels x FFN channels. Predicted and measured speedup: of the variant that the "
        "search timed. Before recovery: retained % directly after pruning, in torch float32. After recovery, baseline: "
        "in the variant that the search timed, after recovery by distillation and after the same number of steps on "
        "labels alone. Several seeds: mean, the 95% interval of retained % over rows and seeds, and each run's value.",
        *dict.fromkeys(f"{speed_of(row)}." for run in runs for row in run.pruned if row.predicted_speedup is not UNSET),
        *dict.fromkeys(note for cut in every for note in cut.notes),
    ]
    if errors:
        notes.append(
            f"Relative error of the predicted speedup, over {len(errors)} models: median {100 * median(errors):.1f}%, "
            f"largest {100 * max(errors):.1f}%."
        )
    notes += dict.fromkeys(run.older_rules for run in runs if run.older_rules)
    return Table("Pruned to a target", columns, rows, 3, [*notes, *_at_equal_speeds(every)])


def _at_equal_speeds(every: Sequence[Cut]) -> Iterator[str]:
    """Sentences on what each group of runs retains at the same measured speed, for every speed that was a target.

    The measured speeds of several methods differ where their targets are the same.
    """
    speeds = sorted({float(cut.target[:-1]) for cut in every if cut.target.endswith("x")})
    for speed in speeds:
        parts = []
        for role, when in (("pruned", "before recovery"), ("student", "after recovery")):
            kept = {run: _retained_at(speed, [cut for cut in every if cut.run == run], role) for run in _runs(every)}
            found = sorted(((value, run) for run, value in kept.items() if value is not None), reverse=True)
            if len(found) > 1:
                parts.append(f"{when} {', '.join(f'{number(value)}% ({run})' for value, run in found)}")
        if parts:
            yield f"At a measured speedup of {speed:g}x, interpolated between the models of a run: {'; '.join(parts)}."


def _runs(every: Sequence[Cut]) -> list[str]:
    return list(dict.fromkeys(cut.run for cut in every))


def _retained_at(speed: float, of_run: Sequence[Cut], role: str) -> float | None:
    """Retained % at a measured speed, on the line between the nearest models; None beyond the slowest and fastest."""
    known = sorted(
        (fmean(cut.measured), fmean(measured(cut.models[role], "retained")[0]))
        for cut in of_run
        if cut.measured and cut.models.get(role)
    )
    if not known or not known[0][0] <= speed <= known[-1][0]:
        return None
    return float(np.interp(speed, [place for place, _ in known], [kept for _, kept in known]))


def points(runs: Sequence[Results]) -> list[figure.Point]:
    """A line for each group of runs and each role. Speedup is over the unpruned model."""
    every = cuts(runs)
    drawn = []
    for cut in every:
        for role, models in cut.models.items():
            if not cut.measured:
                continue
            (x, x_ends), (y, y_ends) = around(cut.measured, []), around(*measured(models, "retained"))
            name = plain_name(cut.run)
            drawn.append(figure.Point("", role, x, y, x_ends, y_ends, name, line=name))
    return drawn
