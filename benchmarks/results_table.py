"""Results in the documents, generated from the committed JSON: no number is typed by hand.

    python benchmarks/results_table.py docs/results/frontier/seed0   # README.md shows this run, over its seeds
    python benchmarks/results_table.py --check                       # exit code 1 if a document differs

Reads every results.json below docs/results, and the files of benchmarks in benchmarks/results. Writes the index in
docs/results, the page and the picture of each run, and the pages that compare several; and README.md and the pages of
docs/ between their markers. Without the name of a run, the table in README.md stays that of the same run.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.openings_table import openings_page
from benchmarks.tables import methods, reliability, speed
from benchmarks.tables.compared import chain_part, compressed_part, controlled_part, levers_part, own_part
from benchmarks.tables.front import README, ending_part, front_part
from benchmarks.tables.markers import between, measured_part
from benchmarks.tables.pages import COMPRESSED, OPENINGS, PICTURE, PRUNED, pages
from benchmarks.tables.pictures import pictures as drawings
from benchmarks.tables.runs import (
    ABLATION,
    BASE,
    COMPRESSION,
    KINDS,
    LEVERS,
    RESULTS,
    ROOT,
    Runs,
    compressed,
    name_of,
    older_rules,
    page_of,
    pictured,
    pruned,
    read,
    trained,
)
from distill.errors import DataError
from distill.evaluation.results import Results
from distill.report import figure, model_rows, overview, pruning_table
from distill.report.table import Table
from distill.runtime.storage.atomic import read_json, write_bytes, write_text

BENCHMARKS = Path("benchmarks/results")
LEFT = "is of no committed run; remove it"
QUANTIZING, REPORT, EXPLAIN = Path("docs/compress/quantize.md"), Path("docs/report.md"), Path("docs/explain")
KEPT, HELPED, LIBRARIES = EXPLAIN / "results.md", EXPLAIN / "helped.md", EXPLAIN / "libraries.md"


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Exit code: 0; 1 if --check finds a document that differs; 2 for a file that cannot be read."""
    parser = argparse.ArgumentParser(description="Generate the results in the documents from the committed JSON.")
    parser.add_argument("run", nargs="?", type=Path, help=f"run that README.md shows, e.g. {RESULTS}/NAME")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a document differs")
    asked = parser.parse_args(arguments)
    try:
        runs = read(root)
        texts = documents(root, runs, name_of(root, asked.run) if asked.run else None)
    except DataError as error:
        print("\n".join(error.messages), file=sys.stderr)
        return 2
    if asked.check:
        wrong = differing(root, runs, texts)
        for path, what in wrong.items():
            print(f"{path}: {what}", file=sys.stderr)
        return 1 if wrong else 0
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        write_text(root / path, text)
    for name, results in pictured(runs).items():
        over, below = model_rows.reference(results), figure.second(results)
        png = figure.png(figure.points(results), bool(results.smoke), over, below)
        write_bytes(root / RESULTS / name / PICTURE, png)
    if points := pruned_points(pruned(runs)):
        write_bytes(root / RESULTS / PRUNED, figure.png(points, over="the unpruned model"))
    if entries := overview.entries(compressed(runs), trained):
        write_bytes(root / RESULTS / COMPRESSED, figure.png(overview.points(entries)))
    if compared := methods.methods(runs):
        write_bytes(root / RESULTS / methods.PICTURE, methods.picture(compared))
    for path in left(root, runs, texts):
        print(f"{path}: {LEFT}", file=sys.stderr)
    return 0


def documents(root: Path, runs: Runs, shown: str | None) -> dict[Path, str]:
    """Path below `root` -> text of each document. `shown` is the run README.md shows."""
    if shown is None:
        link = re.search(rf"{RESULTS}/([^)]+)/results\.json", (root / README).read_text(encoding="utf-8"))
        shown = link[1] if link and link[1] in runs else next(iter(runs), None)
    elif shown not in runs:
        known = ", ".join(runs) or "none"
        wrong = f"{RESULTS / shown}/results.json: got no such file; must be a committed run; choose of {known}"
        shown = next((name for name in runs if page_of(name) == shown), None)  # the first seed of a page
        if shown is None:
            raise DataError(wrong)
    parts = {
        (README, "results"): "No result is committed yet." if shown is None else front_part(shown, runs),
        (REPORT, "ending"): ending_part(runs),
        (KEPT, "own"): own_part(runs),
        (KEPT, "compressed"): compressed_part(
            compressed(runs), older_rules([name for name in runs if name.startswith(COMPRESSION)], runs)
        ),
        (KEPT, "kinds"): controlled_part(runs, KINDS, "Kind"),
        (KEPT, "base"): controlled_part(runs, BASE, "Run"),
        (HELPED, "chain"): chain_part(runs),
        (HELPED, "levers"): levers_part(runs, LEVERS),
        (EXPLAIN / "not-helped.md", "ablation"): levers_part(runs, ABLATION),
    }
    for name, (document, table) in _MEASUREMENTS.items():
        file = root / BENCHMARKS / f"{name}.json"
        parts[document, name] = measured_part(table(read_json(file))) if file.is_file() else "Not measured yet."
    texts: dict[Path, str] = {}
    for (document, name), content in parts.items():
        text = texts.get(document) or (root / document).read_text(encoding="utf-8")
        texts[document] = between(document, text, name, content)
    return texts | pages(runs) | drawings(shown, runs) | {RESULTS / OPENINGS: openings_page(runs)}


def differing(root: Path, runs: Runs, texts: dict[Path, str]) -> dict[Path, str]:
    """Documents whose text differs, missing pictures, and what no run has any more -> what to do. Pictures are
    not compared: their bytes depend on fonts."""
    wrong = [p for p, text in texts.items() if not (root / p).is_file() or (root / p).read_text("utf-8") != text]
    wrong += [path for path in pictures(runs) if not (root / path).is_file()]
    again = dict.fromkeys(wrong, "differs from the results; run python benchmarks/results_table.py")
    return again | dict.fromkeys(left(root, runs, texts), LEFT)


def pictures(runs: Runs) -> list[Path]:
    """The pictures below docs/results."""
    found = [RESULTS / name / PICTURE for name in pictured(runs)]
    found += [RESULTS / PRUNED] if pruned_points(pruned(runs)) else []
    found += [RESULTS / methods.PICTURE] if methods.methods(runs) else []
    return found + ([RESULTS / COMPRESSED] if compressed(runs) else [])


def pruned_points(runs: Sequence[Results]) -> list[figure.Point]:
    """A line for each group of runs and each role. Speedup is over the unpruned model."""
    drawn = []
    for cut in pruning_table.cuts(runs, trained):
        for role, models in cut.models.items():
            if not (speeds := overview.values(cut.measured)):
                continue
            retained = overview.measured(models.values(), "retained")
            (x, x_ends), (y, y_ends) = overview.around(speeds, []), overview.around(*retained)
            line = overview.plain_name(cut.run)
            drawn.append(figure.Point("", role, x, y, x_ends, y_ends, line, line=line))
    return drawn


def left(root: Path, runs: Runs, texts: dict[Path, str]) -> list[Path]:
    """Pages and pictures below docs/results that no run has any more."""
    found = [path for end in ("*.md", "*.png") for path in (root / RESULTS).rglob(end)]
    return sorted({path.relative_to(root) for path in found} - {*texts, *pictures(runs)})


_MEASUREMENTS: dict[str, tuple[Path, Callable[[dict[str, Any]], Table]]] = {
    "frameworks": (LIBRARIES, speed.frameworks_table),
    "step": (LIBRARIES, speed.step_table),
    "quantize": (QUANTIZING, speed.quantize_table),
    "startup": (LIBRARIES, speed.startup_table),
    "corpus": (EXPLAIN / "corpora.md", speed.corpus_table),
    "attention": (EXPLAIN / "cpu.md", speed.attention_table),
    "gpu": (EXPLAIN / "gpu.md", speed.gpu_table),
    "embedders": (LIBRARIES, speed.embedders_table),
    "embedder_terms": (EXPLAIN / "embedder-terms.md", speed.embedder_terms_table),
    "coverage": (EXPLAIN / "seeds.md", speed.coverage_table),
    "chaos": (EXPLAIN / "interruptions.md", reliability.chaos_table),
    "edits": (EXPLAIN / "edited-inputs.md", reliability.edits_table),
    "fuzz": (EXPLAIN / "random-inputs.md", reliability.fuzz_table),
    "soak": (EXPLAIN / "long-series.md", reliability.soak_table),
}
"""File in benchmarks/results -> document with its markers, and the function of its table."""


if __name__ == "__main__":
    sys.exit(main())
