"""What the documents say about results, made from the committed JSON: no number in them is typed.

    python benchmarks/results_table.py docs/results/glue-distilbert   # README.md shows this run
    python benchmarks/results_table.py --check                        # exit code 1 where a document differs

Read: every results.json below docs/results, and step.json and quantize.json in benchmarks/results. Written:
docs/results/README.md, the picture of each run, and README.md between its markers. Without a run named, README.md goes
on showing the one it shows.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distill.checkpoint import read_json, write_text
from distill.errors import DataError
from distill.report import figure, headline, markdown, overview
from distill.report.overview import read_one
from distill.report.schema import Results
from distill.report.table import Table, models_table, number, times, with_interval

ROOT = Path(__file__).resolve().parents[1]
RESULTS, BENCHMARKS = Path("docs/results"), Path("benchmarks/results")
PICTURE = "frontier.png"
"""PNG on white: an SVG without a ground cannot be read on a dark page."""
PRUNED, COMPRESSED = "pruned.png", "compressed.png"
SHOWN = ("Model", "Backend", "Scheme", "Retained", "Speedup", "Parameters", "Seeds")
"""Columns of what README.md shows of models compressed over seeds."""


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Exit code: 0; 1 when checking finds a document that differs; 2 for what cannot be read."""
    parser = argparse.ArgumentParser(description="Make the results in the documents from the committed JSON.")
    parser.add_argument("run", nargs="?", type=Path, help=f"the run README.md shows, e.g. {RESULTS}/NAME")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where a document differs")
    asked = parser.parse_args(arguments)
    try:
        runs = read(root)
        made = documents(root, runs, _name(root, asked.run) if asked.run else None)
    except DataError as error:
        print("\n".join(error.messages), file=sys.stderr)
        return 2
    if asked.check:
        wrong = differing(root, runs, made)
        for path in wrong:
            print(f"{path}: not what the results make; run python benchmarks/results_table.py", file=sys.stderr)
        return 1 if wrong else 0
    for path, text in made.items():
        write_text(root / path, text)
    for name, results in runs.items():
        shown = figure.png(figure.points(results), bool(results.get("smoke")))
        (root / RESULTS / name / PICTURE).write_bytes(shown)
    if ways := overview.pruned_points(_pruned(runs)):
        (root / RESULTS / PRUNED).write_bytes(figure.png(ways, over="the unpruned model"))
    if several := overview.entries(_compressed(runs)):
        (root / RESULTS / COMPRESSED).write_bytes(figure.png(overview.points(several)))
    return 0


def read(root: Path) -> dict[str, Results]:
    """Name -> results of every committed run; DataError for one that is not of schema 1."""
    return {_name(root, path.parent): read_one(path) for path in sorted((root / RESULTS).rglob("results.json"))}


def _name(root: Path, folder: Path) -> str:
    """A run's folder, as it is called below that of all results."""
    place, above = (root / folder).resolve(), (root / RESULTS).resolve()
    if not place.is_relative_to(above):
        raise DataError(f"{folder}: got another folder; must be a run below {RESULTS}; e.g. {RESULTS}/NAME")
    return place.relative_to(above).as_posix()


def documents(root: Path, runs: dict[str, Results], shown: str | None) -> dict[Path, str]:
    """Path below `root` -> text of each document. `shown` is the run README.md shows."""
    readme = (root / "README.md").read_text(encoding="utf-8")
    if shown is None:
        found = re.search(rf"{RESULTS}/([^)]+)/results\.json", readme)
        shown = found[1] if found and found[1] in runs else next(iter(runs), None)
    elif shown not in runs:
        there = ", ".join(runs) or "nothing"
        raise DataError(f"{RESULTS / shown}/results.json: got no such file; must be a run; there is {there}")
    step, quantize = (
        read_json(file) if (file := root / BENCHMARKS / f"{name}.json").is_file() else None
        for name in ("step", "quantize")
    )
    readme = between(readme, "results", "No result is committed yet." if shown is None else main_part(shown, runs))
    readme = between(readme, "compressed", compressed_part(overview.entries(_compressed(runs))))
    readme = between(readme, "step", "Not measured yet." if step is None else step_part(step))
    readme = between(readme, "quantize", "Not measured yet." if quantize is None else quantize_part(quantize))
    return {Path("README.md"): readme, RESULTS / "README.md": page(runs)}


def differing(root: Path, runs: dict[str, Results], made: dict[Path, str]) -> list[Path]:
    """Documents that are not as made, and pictures that are missing (their bytes depend on fonts)."""
    wrong = [p for p, text in made.items() if not (root / p).is_file() or (root / p).read_text("utf-8") != text]
    pictures = [RESULTS / name / PICTURE for name in runs]
    pictures += [RESULTS / PRUNED] if overview.pruned_points(_pruned(runs)) else []
    pictures += [RESULTS / COMPRESSED] if _compressed(runs) else []
    return wrong + [path for path in pictures if not (root / path).is_file()]


def between(text: str, name: str, content: str) -> str:
    """`text` with `content` between the markers of that name."""
    before, begin, rest = text.partition(f"<!-- {name}:begin -->")
    _, end, after = rest.partition(f"<!-- {name}:end -->")
    if not end:
        raise DataError(f"README.md: got no {name} markers; must have <!-- {name}:begin --> and <!-- {name}:end -->")
    return f"{before}{begin}\n{content}\n{end}{after}"


def main_part(name: str, runs: dict[str, Results]) -> str:
    """What README.md shows of a run: the headline, the main table, what the average covers."""
    results = runs[name]
    links = (
        f"Numbers: [results.json]({RESULTS / name}/results.json). "
        f"Command, notes and picture, and every other run: [{RESULTS}]({RESULTS}/README.md)."
    )
    parts = [
        markdown.banner(bool(results.get("smoke"))),
        f"**{markdown.escaped(headline.headline(results))}**",
        markdown.table(models_table(results)),
        markdown.escaped(" ".join(headline.coverage(results))),
        links,
    ]
    return "\n\n".join(part for part in parts if part)


def compressed_part(shown: Sequence[overview.Entry]) -> str:
    """Of models compressed over seeds, those that no other is both better and faster than, and what had no teacher."""
    places = [point for point in overview.points(shown) if point.role == "student"]
    best = {int(one.label) - 1 for one in places if not any(_beats(other, one) for other in places)}
    left = [e for i, e in enumerate(shown) if i in best or e.models[0]["role"] == "baseline"]
    if not left:
        return "No result is committed yet."
    found = overview.table(left)
    wanted = [index for index, name in enumerate(found.columns) if name.startswith(SHOWN)]
    rows = [tuple(row[i] for i in wanted) for row in found.rows]
    narrow = Table(found.title, tuple(found.columns[i] for i in wanted), rows, 3, [], found.roles)
    where = f"Every form, commands and pictures: [{RESULTS}]({RESULTS}/README.md#compressed-over-seeds)."
    return f"{markdown.table(narrow)}\n\n{where}"


def _beats(one: figure.Point, other: figure.Point) -> bool:
    """As good and as fast, and better in one of both."""
    gains = (one.speedup - other.speedup, one.retained - other.retained)
    return min(gains) >= 0 and max(gains) > 0


def page(runs: dict[str, Results]) -> str:
    """Every run, a section each."""
    parts = ["# Results", "Made by `benchmarks/results_table.py` from the `results.json` in each folder."]
    sections = [part for name, results in runs.items() for part in section(name, results)]
    if (cut := overview.pruned_table(_pruned(runs))) is not None:
        picture = f"![Retained % against speedup]({PRUNED})"
        parts += [f"## {cut.title}", picture, markdown.table(cut), markdown.bullets(cut.notes)]
    if several := overview.entries(_compressed(runs)):
        forms, picture = overview.table(several), f"![Retained % against speedup]({COMPRESSED})"
        parts += ["## Compressed, over seeds", picture, markdown.table(forms), markdown.bullets(forms.notes)]
    return "\n\n".join([*parts, *(sections or ["No result is committed yet."])]) + "\n"


def _pruned(runs: dict[str, Results]) -> list[Results]:
    """What is compared with each other: the runs in one folder."""
    return [results for name, results in runs.items() if name.startswith("pruning/") and "pruned" in results]


def _compressed(runs: dict[str, Results]) -> list[Results]:
    return [results for name, results in runs.items() if name.startswith("compression/")]


def section(name: str, results: Results) -> list[str]:
    main_table = models_table(results)
    seeds = ", ".join(map(str, results["seeds"]))
    teacher, version = results.get("teacher_name", "-"), results["version"]
    parts = [
        f"## {markdown.escaped(name)}",
        markdown.banner(bool(results.get("smoke"))),
        f"**{markdown.escaped(headline.headline(results))}**",
        f"Teacher: {markdown.escaped(teacher)}. Seed {seeds}. Made by distill {markdown.escaped(version)}:",
        f"    {' '.join(results['command'].split())}",
        f"![Retained % against speedup]({name}/{PICTURE})",
        markdown.table(main_table),
        markdown.bullets(main_table.notes),
        markdown.bullets(headline.coverage(results)),
        markdown.escaped(headline.timing(results)),
    ]
    return [part for part in parts if part]


def step_part(measured: dict[str, Any]) -> str:
    shown = step_table(measured)
    return f"{markdown.table(shown)}\n\n{' '.join(map(markdown.escaped, shown.notes))}"


def step_table(measured: dict[str, Any]) -> Table:
    """What `benchmarks/step.py` measured, a row for each kind of step."""
    rows = [
        (
            row["name"],
            number(row["tokens_per_second"], 0),
            number(row["median_ms"], 0),
            number(row["peak_mib"], 0),
            with_interval(times(row["speedup"]["median"]), row["speedup"]["ci95"], 2),
        )
        for row in measured["rows"]
    ]
    facts = measured["environment"]
    machine = f"{facts['gpu']} and {facts['cpu']}" if facts["gpu"] else facts["cpu"]
    notes = [
        f"One step of a random BERT with {measured['teacher_layers']} layers, {measured['hidden']} wide, to "
        f"{measured['student_layers']} layers: batch {measured['batch']} x {measured['length']}, {measured['masked']} "
        f"positions masked, vocabulary {measured['vocabulary']}, dropout {measured['dropout']} in all.",
        f"Medians of {measured['repeats']} rounds, all kinds in turn; {facts['threads']} threads, {machine}, "
        f"torch {facts['torch']}.",
        "Peak: memory in use during the step, over weights and optimizer state.",
    ]
    return Table("Training step", ("Step", "Tokens/s", "ms", "Peak MiB", "Speedup [95%]"), rows, 1, notes)


def quantize_part(measured: dict[str, Any]) -> str:
    shown = quantize_table(measured)
    return f"{markdown.table(shown)}\n\n{' '.join(map(markdown.escaped, shown.notes))}"


def quantize_table(measured: dict[str, Any]) -> Table:
    """What `benchmarks/quantize.py` measured, a row for each form."""
    rows = [
        (
            row["backend"],
            row["scheme"],
            number(row["mib"], 0),
            number(row["median_ms"], 1),
            with_interval(times(row["speedup"]["median"]), row["speedup"]["ci95"], 2),
        )
        for row in measured["rows"]
    ]
    facts = measured["environment"]
    packages = ("torch", "onnxruntime", "openvino", "torchao")
    versions = ", ".join(f"{name} {facts[name]}" for name in packages if facts[name])
    notes = [
        f"A random BERT of {measured['layers']} layers, {measured['hidden']} wide, batch {measured['batch']} x "
        f"{measured['length']}.",
        f"Medians of {measured['repeats']} rounds, all forms in turn; {facts['threads']} threads, {facts['cpu']}, "
        f"{versions}.",
        f"Speedup: against {measured['fastest_float32']}, the fastest float32.",
    ]
    return Table("Quantized forms", ("Backend", "Scheme", "MiB", "ms", "Speedup [95%]"), rows, 2, notes)


if __name__ == "__main__":
    sys.exit(main())
