"""One page over many runs: every student and baseline in one figure and one table.

Runs that differ only in their seed are one row, mean +- standard deviation over the runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from distill.checkpoint import read_json
from distill.errors import DataError
from distill.report import figure, headline, html, markdown
from distill.report.schema import Model, Results, validate
from distill.report.table import Row, Table, number, times, with_interval
from distill.report.timed import at, middle_shape

TITLE = "All runs"

OF_THE_REPORT = ("pipeline=", "stages.evaluate.")
"""Settings that say what of a run is compared, not what it made."""


@dataclass(frozen=True)
class Entry:
    """One row of the page: the same form of the same model in runs that differ only in their seed."""

    series: int
    settings: str
    models: list[Model]
    runs: list[Results]


def read(folder: Path) -> list[Results]:
    """Every distinct results.json below `folder`. DataError if there is none or if some are not valid."""
    paths = [path for path in sorted(folder.rglob("results.json")) if not _hidden(path.relative_to(folder))]
    if not paths:
        raise DataError(
            f"{folder}: got no results.json below it; must be a folder of finished runs; run a recipe first"
        )
    found: dict[str, Results] = {}
    errors: list[str] = []
    for path in paths:
        try:
            results = read_one(path)
        except DataError as error:
            errors += error.messages
        else:
            found.setdefault(json.dumps(results, sort_keys=True), results)
    if errors:
        raise DataError(errors)
    return list(found.values())


def read_one(path: Path) -> Results:
    """A results.json; DataError if it is not JSON or not of schema 1."""
    try:
        results = read_json(path)
    except ValueError as error:
        raise DataError(f"{path}: got {error}; must be JSON; run its recipe again") from error
    wrong = validate(results)
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise DataError(f"{path}: {wrong[0]}{more}; must be of schema 1; run its recipe again")
    return results


def _hidden(path: Path) -> bool:
    """What is being written has a name with a dot first."""
    return any(part.startswith(".") for part in path.parts)


def settings(results: Results) -> str:
    """Recipe and overrides, without the seed and the place of the output."""
    words = [word.strip("'\"") for word in results["command"].split()]
    spared = ("recipe=", "seed=", "output=", "hydra.")
    overrides = [word for word in words if "=" in word and not word.startswith((*spared, "-"))]
    return " ".join([results["recipe"], *sorted(overrides)])


def _grouped(runs: Sequence[Results], name: Callable[[Results], str]) -> list[list[Results]]:
    """Runs of one name that differ only in their seed, together."""
    groups: dict[str, list[Results]] = {}
    for run in runs:
        same = [name(run), run["version"], run["environment"], run.get("teacher_name"), run.get("smoke", False)]
        key = json.dumps(same, sort_keys=True)
        while any(set(run["seeds"]) & set(other["seeds"]) for other in groups.get(key, ())):
            key += "+"  # the same seed twice with other numbers: something else differs, so nothing is averaged
        groups.setdefault(key, []).append(run)
    return list(groups.values())


def entries(runs: Sequence[Results]) -> list[Entry]:
    """Students and baselines, grouped over seeds."""
    made = []
    for series, group in enumerate(_grouped(runs, settings)):
        forms: dict[tuple[str, str, str], list[tuple[Model, Results]]] = {}
        for run in group:
            for model in run["models"]:
                if model["role"] not in ("teacher", "member"):
                    forms.setdefault((model["name"], model["backend"], model["scheme"]), []).append((model, run))
        for found in forms.values():
            made.append(Entry(series, settings(group[0]), [m for m, _ in found], [r for _, r in found]))
    return made


def _values(found: Sequence[float | None]) -> list[float]:
    return [value for value in found if value is not None]


def _cell(entry: Entry, key: str, digits: int) -> str:
    """mean +- std over runs; of one run its value with the 95% interval."""
    show = times if key == "speedup" else number
    value_of = headline.speedup if key == "speedup" else headline.retained
    found = _values([value_of(m) for m in entry.models])
    if not found:
        return "failed" if key == "retained" and any("failed" in m for m in entry.models) else "-"
    if len(found) == 1:
        one = next(m for m in entry.models if value_of(m) is not None)
        return with_interval(show(found[0]), headline.interval(one, key), digits)
    return _mean(found, show, digits)


def _average(entry: Entry) -> str:
    found = _values([m.get("glue") for m in entry.models])
    return _mean(found, number, 1)


def _parameters(entry: Entry) -> str:
    """From the fewest to the most: runs that prune to a speed may cut different shapes."""
    found = sorted(_values([m.get("parameters") for m in entry.models]))
    ends = dict.fromkeys(f"{count / 1e6:.2f}" for count in (found[:1] + found[-1:]))
    return f"{' to '.join(ends)} M" if ends else "-"


def _names(shown: Sequence[Entry]) -> tuple[dict[str, str], str]:
    """Settings of each run -> its recipe and what not all others have too; and what they all have."""
    every = [entry.settings.split() for entry in shown]
    common = [word for word in (every[0][1:] if every else []) if all(word in words for words in every)]
    names = {" ".join(words): " ".join(word for word in words if word not in common) for words in every}
    return names, " ".join(common)


def table(shown: Sequence[Entry]) -> Table:
    """The rows, numbered as the points of the figure are."""
    columns = (
        "#",
        "Run",
        "Model",
        "Backend",
        "Scheme",
        "Retained %",
        f"Speedup{at(middle_shape(run) for entry in shown for run in entry.runs)}",
        "Average",
        "Average of",
        "Parameters",
        "Seeds",
    )
    rows: list[Row] = []
    remarks = []
    names, common = _names(shown)
    for index, entry in enumerate(shown, 1):
        first = entry.models[0]
        seeds = sorted({seed for run in entry.runs for seed in run["seeds"]})
        rows.append(
            (
                str(index),
                names[entry.settings],
                first["name"],
                first["backend"],
                first["scheme"],
                _cell(entry, "retained", 1),
                _cell(entry, "speedup", 2),
                _average(entry),
                ", ".join(dict.fromkeys(map(headline.average_name, entry.runs))),
                _parameters(entry),
                ", ".join(map(str, seeds)),
            )
        )
        remarks += [f"#{index} failed: {m['failed']}" for m in entry.models if "failed" in m]
        remarks += [f"#{index}: {m['note']}" for m in entry.models if "note" in m]
        if headline.where(entry.runs[0], first):
            remarks.append(f"#{index} was run on the CPU, not on the {entry.runs[0]['environment']['gpu']}.")
    notes = [
        *([f"Every run has {common}."] if common else []),
        "#: number in the figure. One run: value [95% interval]. Several seeds: mean ± standard deviation over runs.",
        "Retained: over the macro score of the run's own teacher. Speedup: over that teacher's fastest float32 form, "
        "on the machine of that run; a timed shape is batch x length. Compare rows only where teacher and average are "
        "the same.",
        *dict.fromkeys(remarks),
    ]
    return Table("Every run", columns, rows, 5, notes, [entry.models[0]["role"] for entry in shown])


@dataclass(frozen=True)
class Cut:
    """What was cut for one target in runs that differ only in their seed, and what it kept; retained in %."""

    run: str
    target: str
    seeds: list[int]
    shapes: list[str]
    predicted: list[float]
    measured: list[float]
    kept: dict[str, list[float]]
    """Retained of roles "pruned" (as it was cut), "student" (recovered) and "baseline" (without a teacher)."""


def cuts(runs: Sequence[Results]) -> list[Cut]:
    """What was cut to a predicted speed, target by target, in the arithmetic that was searched in."""
    names, _ = _names(entries(runs))

    def way(run: Results) -> str:
        return " ".join(word for word in names[settings(run)].split() if not word.startswith(OF_THE_REPORT))

    found: list[Cut] = []
    for group in _grouped(runs, way):
        mine: dict[str, Cut] = {}
        for run in group:
            for made in run.get("pruned", []):
                if "predicted_speedup" in made:
                    target = made["target"] or "-"
                    _add(mine.setdefault(target, Cut(way(run), target, [], [], [], [], {})), run, made)
        found += mine.values()
    targets = dict.fromkeys(cut.target for cut in found)
    return [cut for target in targets for cut in found if cut.target == target]


def _add(cut: Cut, run: Results, made: Any) -> None:
    recovers = any(stage["name"].partition("/")[0] == "recover" for stage in run["stages"])
    cut.seeds.extend(run["seeds"])
    cut.shapes.append(f"{made['layers']} x {made['hidden']} x {made['ffn']}")
    cut.predicted.append(made["predicted_speedup"])
    cut.measured.extend(_values([made["measured_speedup"]]))
    for model in run["models"]:
        role = model["role"] if recovers or model["role"] != "student" else "pruned"
        same = model["name"].split()[1:] == (made["target"] or "").split()
        if same and (model["backend"], model["scheme"]) == ("torch", made["scheme"]):
            cut.kept.setdefault(role, []).extend(_values([headline.retained(model)]))


def _mean(found: Sequence[float], show: Callable[[float | None], str], digits: int) -> str:
    """mean +- standard deviation; of one number itself."""
    if not found:
        return "-"
    return show(fmean(found)) + (f" ± {stdev(found):.{digits}f}" if len(found) > 1 else "")


def _of_seeds(cut: Cut, role: str) -> str:
    """What is retained, and of how many seeds, where some runs do not have it."""
    kept, seeds = cut.kept.get(role, []), len(set(cut.seeds))
    return _mean(kept, number, 1) + (f" ({len(kept)} of {seeds} seeds)" if 0 < len(kept) < seeds else "")


def pruned_table(runs: Sequence[Results]) -> Table | None:
    """What was cut for each target, and what the model kept before and after it recovered; None if nothing was."""
    found = cuts(runs)
    if not found:
        return None
    rows: list[Row] = [
        (
            cut.target,
            cut.run,
            ", ".join(dict.fromkeys(cut.shapes)),
            _mean(cut.predicted, times, 2),
            _mean(cut.measured, times, 2),
            *(_of_seeds(cut, role) for role in ("pruned", "student", "baseline")),
            ", ".join(map(str, sorted(set(cut.seeds)))),
        )
        for cut in found
    ]
    columns = ("Target", "Run", "Shape", "Predicted", "Measured", "As cut", "Recovered", "Without a teacher", "Seeds")
    _, common = _names(entries(runs))
    off = [
        abs(made["predicted_speedup"] / made["measured_speedup"] - 1)
        for run in runs
        for made in run.get("pruned", [])
        if made.get("predicted_speedup") and made["measured_speedup"]
    ]
    notes = [
        *([f"Every run has {common}."] if common else []),
        "Shape: layers x hidden channels x FFN channels. Predicted and measured: speed over the unpruned model, both "
        "in the float32 that was searched in, at the target's batch x length. The next columns: retained % in that "
        "arithmetic, as the model was cut, once it had recovered by distillation, and after as many steps on labels "
        "alone. Several seeds: mean ± standard deviation over runs.",
    ]
    if off:
        notes.append(
            f"Predicted against measured, {len(off)} models: median error {100 * median(off):.1f}%, largest "
            f"{100 * max(off):.1f}%."
        )
    return Table("Pruned to a target", columns, rows, 3, [*notes, *_best(found)])


def _best(found: Sequence[Cut]) -> Iterator[str]:
    """What keeps most at each target, where there are several ways that reach about its speed."""
    for target in dict.fromkeys(cut.target for cut in found):
        said = []
        for role, when in (("pruned", "as cut"), ("student", "recovered")):
            kept = {cut.run: fmean(cut.kept[role]) for cut in found if cut.target == target and cut.kept.get(role)}
            if len(kept) > 1:
                best, worst = max(kept, key=lambda run: kept[run]), min(kept, key=lambda run: kept[run])
                said.append(
                    f"{when}, {best} keeps most ({number(kept[best])}) and {worst} least ({number(kept[worst])})"
                )
        if said:
            yield f"{target}: {'; '.join(said)}."


def pruned_points(runs: Sequence[Results]) -> list[figure.Point]:
    """A curve for each way to prune and each of: as cut, recovered, without a teacher. Speed is over the unpruned
    model."""
    found = cuts(runs)
    ways = list(dict.fromkeys(cut.run for cut in found))
    shown = []
    for cut in found:
        for role, kept in cut.kept.items():
            if not (cut.measured and kept):
                continue
            (x, x_ends), (y, y_ends) = _around(cut.measured), _around(kept)
            shown.append(figure.Point("", role, x, y, x_ends, y_ends, ways.index(cut.run), curve=cut.run))
    return shown


def _around(found: Sequence[float]) -> tuple[float, tuple[float, float] | None]:
    """Mean, and one standard deviation to both sides of it where there are several."""
    middle = fmean(found)
    return middle, (middle - stdev(found), middle + stdev(found)) if len(found) > 1 else None


def points(shown: Sequence[Entry]) -> list[figure.Point]:
    """A point for each row that has both numbers, labelled with the row's number."""
    found = []
    for index, entry in enumerate(shown, 1):
        across = [headline.speedup(m) for m in entry.models]
        along = [headline.retained(m) for m in entry.models]
        if _values(across) and _values(along):
            x, x_ends = _spread(entry, "speedup", _values(across))
            y, y_ends = _spread(entry, "retained", _values(along))
            role, shape = entry.models[0]["role"], middle_shape(entry.runs[0])
            found.append(figure.Point(str(index), role, x, y, x_ends, y_ends, entry.series, shape))
    return found


def _spread(entry: Entry, key: str, found: list[float]) -> tuple[float, tuple[float, float] | None]:
    middle, around = _around(found)
    if around is not None:
        return middle, around
    ends = next((e for m in entry.models if (e := headline.interval(m, key))), None)
    return middle, (ends[0], ends[1]) if ends else None


def headlines(runs: Sequence[Results]) -> list[str]:
    """The result of each run in its own words."""
    return [f"{settings(run)}, seed {', '.join(map(str, run['seeds']))}: {headline.headline(run)}" for run in runs]


def pages(runs: Sequence[Results]) -> tuple[str, str, str]:
    """(Markdown, HTML, SVG) of the page."""
    real = [run for run in runs if not run.get("smoke")]
    smoke = not real
    counted = real or runs
    shown = entries(counted)
    summary = f"{len(counted)} run{'s' if len(counted) > 1 else ''}, {len(shown)} models."
    if real and len(real) < len(runs):
        summary += f" Left out: {len(runs) - len(real)} of limit=smoke, whose numbers mean nothing."
    said = headlines(counted)
    cut = pruned_table(counted)
    drawn = figure.svg(points(shown), smoke)
    parts = [
        f"# {TITLE}",
        markdown.banner(smoke),
        summary,
        "![Retained % against speedup](frontier.svg)",
        markdown.table(table(shown)),
        markdown.bullets(table(shown).notes),
        *([] if cut is None else [f"## {cut.title}", markdown.table(cut), markdown.bullets(cut.notes)]),
        "## Run by run",
        markdown.bullets(said),
    ]
    document = html.document(
        TITLE,
        smoke,
        [
            f"<h1>{TITLE}</h1>",
            f'<p class="headline">{summary}</p>',
            html.picture(drawn),
            html.table(table(shown)),
            *([] if cut is None else [html.table(cut)]),
            f"<h2>Run by run</h2>{html.bullets(said)}",
        ],
    )
    return "\n\n".join(part for part in parts if part) + "\n", document, drawn
