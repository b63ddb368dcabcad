"""What many runs pruned to a predicted speed: the shapes, the speed that was measured, and what the models retained.

Runs that differ only in their seed are one row, mean +- standard deviation over the runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from distill.report import figure, headline
from distill.report.overview import around, common_settings, entries, grouped, mean, names, settings, values
from distill.report.schema import Results
from distill.report.table import Row, Table, number, times

OF_THE_REPORT = ("pipeline=", "stages.evaluate.")
"""Settings of what a run compares, not of the models that it makes."""


@dataclass(frozen=True)
class Cut:
    """What a prune stage cut for one target in runs that differ only in their seed."""

    run: str
    target: str
    seeds: list[int]
    shapes: list[str]
    predicted: list[float]
    measured: list[float]
    retained: dict[str, list[float]]
    """Retained % by role: "pruned" (as it was cut), "student" (recovered) and "baseline" (without a teacher)."""


def cuts(runs: Sequence[Results]) -> list[Cut]:
    """What was cut to a predicted speed, target by target, in the float32 variant of the search."""
    short, _ = names(entries(runs))

    def way(run: Results) -> str:
        return " ".join(word for word in short[settings(run)].split() if not word.startswith(OF_THE_REPORT))

    every: list[Cut] = []
    for group in grouped(runs, way):
        of_group: dict[tuple[str, str], Cut] = {}
        for run in group:
            for row in run.get("pruned", []):
                if "predicted_speedup" in row:
                    target = row["target"] or "-"
                    cut = of_group.setdefault((row["step"], target), Cut(way(run), target, [], [], [], [], {}))
                    _add(cut, run, row)
        every += of_group.values()
    targets = dict.fromkeys(cut.target for cut in every)
    return [cut for target in targets for cut in every if cut.target == target]


def _add(cut: Cut, run: Results, row: dict[str, Any]) -> None:
    cut.seeds.extend(run["seeds"])
    cut.shapes.append(f"{row['layers']} x {row['hidden']} x {row['ffn']}")
    cut.predicted.append(row["predicted_speedup"])
    cut.measured.extend(values([row["measured_speedup"]]))
    kinds = headline.kinds(run)
    for model in run["models"]:
        as_cut = model["role"] == "student" and kinds.get(model["step"]) in ("prune", "vocabulary")
        variant = (model["target"], model["backend"], model["scheme"])
        if model["role"] in ("student", "pruned", "baseline") and variant == (row["target"], "torch", row["scheme"]):
            role = "pruned" if as_cut else model["role"]
            cut.retained.setdefault(role, []).extend(values([headline.retained(model)]))


def _of_seeds(cut: Cut, role: str) -> str:
    """What is retained, and the number of seeds where some runs do not have the model."""
    retained, seeds = cut.retained.get(role, []), len(set(cut.seeds))
    return mean(retained, number, 1) + (f" ({len(retained)} of {seeds} seeds)" if 0 < len(retained) < seeds else "")


def table(runs: Sequence[Results]) -> Table | None:
    """A row for each target and way to prune: retained % as cut, recovered, without a teacher; None without a row."""
    every = cuts(runs)
    if not every:
        return None
    rows: list[Row] = [
        (
            cut.target,
            cut.run,
            ", ".join(dict.fromkeys(cut.shapes)),
            mean(cut.predicted, times, 2),
            mean(cut.measured, times, 2),
            *(_of_seeds(cut, role) for role in ("pruned", "student", "baseline")),
            ", ".join(map(str, sorted(set(cut.seeds)))),
        )
        for cut in every
    ]
    columns = ("Target", "Run", "Shape", "Predicted", "Measured", "As cut", "Recovered", "Without a teacher", "Seeds")
    off = [
        abs(row["predicted_speedup"] / row["measured_speedup"] - 1)
        for run in runs
        for row in run.get("pruned", [])
        if row.get("predicted_speedup") and row["measured_speedup"]
    ]
    notes = [
        *common_settings(entries(runs)),
        "Shape: layers x hidden channels x FFN channels. Predicted and measured: speedup over the unpruned model, in "
        "the float32 variant of the search, at the target's batch x length. As cut, recovered and without a teacher: "
        "retained % in that variant right after pruning, after recovery by distillation, and after as many steps on "
        "labels alone. Several seeds: mean ± standard deviation over runs.",
    ]
    if off:
        notes.append(
            f"Predicted against measured speedup of {len(off)} models: median error {100 * median(off):.1f}%, largest "
            f"{100 * max(off):.1f}%."
        )
    return Table("Pruned to a target", columns, rows, 3, [*notes, *_best(every)])


def _best(every: Sequence[Cut]) -> Iterator[str]:
    """The ways to prune that keep most and least at each target, where there are several."""
    for target in dict.fromkeys(cut.target for cut in every):
        parts = []
        for role, when in (("pruned", "as cut"), ("student", "recovered")):
            of_target = [cut for cut in every if cut.target == target and cut.retained.get(role)]
            kept = {cut.run: fmean(cut.retained[role]) for cut in of_target}
            if len(kept) > 1:
                best, worst = max(kept, key=lambda run: kept[run]), min(kept, key=lambda run: kept[run])
                parts.append(
                    f"{when}, {best} keeps most ({number(kept[best])}) and {worst} least ({number(kept[worst])})"
                )
        if parts:
            yield f"{target}: {'; '.join(parts)}."


def points(runs: Sequence[Results]) -> list[figure.Point]:
    """A curve for each way to prune and each of: as cut, recovered, without a teacher. Speedup is over the unpruned
    model.
    """
    every = cuts(runs)
    ways = list(dict.fromkeys(cut.run for cut in every))
    drawn = []
    for cut in every:
        for role, retained in cut.retained.items():
            if not (cut.measured and retained):
                continue
            (x, x_ends), (y, y_ends) = around(cut.measured), around(retained)
            drawn.append(figure.Point("", role, x, y, x_ends, y_ends, ways.index(cut.run), curve=cut.run))
    return drawn
