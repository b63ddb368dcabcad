"""Every variant of every run as flat rows, for CSV and JSON files. Runs of several seeds are not averaged."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from distill.evaluation.results import Model, known
from distill.evaluation.time_results import Over
from distill.report import model_rows, overview
from distill.report.itself import is_teacher
from distill.report.loading import loading
from distill.report.timed import milliseconds
from distill.report.variants import Run, speedups
from distill.runtime.cells import csv_line
from distill.runtime.storage.atomic import write_text

_COPIED = (
    "name",
    "role",
    "step",
    "target",
    "scheme",
    "backend",
    "parameters",
    "size_mib",
    "gmacs",
    "macro",
    "throughput_per_second",
    "cold_start_ms",
    "memory_mib",
    "energy_j",
    "cost_per_million",
    "failed",
)
_TEACHER = {"name": "teacher", "role": "teacher"}
"""Of a form of the teacher that a run without a student reports in the student's place."""


def rows(runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """A record of each variant: names, percentages, speedups, milliseconds at each input, scores, how to load it."""
    for run in runs:
        facts = {"run": run.folder, "recipe": run.results.recipe, "settings": overview.settings(run.results)}
        seeds = " ".join(map(str, run.results.seeds))
        for model in run.results.models:
            row = to_builtins(model)
            yield {
                **facts,
                "seeds": seeds,
                "load": run.results.load,
                "older_rules": run.results.older_rules or None,
                **{key: row.get(key) for key in _COPIED},
                **(_TEACHER if model.role == "student" and is_teacher(run.results, model) else {}),
                **_retained(model),
                "input": run.input,
                **{f"speedup.{name}": value.value for name, value in speedups(model, run).items()},
                **_ends("speedup", model_rows.interval(model, "speedup")),
                "over_kept": None if (over := _over_kept(model)) is None else over.median,
                **{f"ms.{name}": value for name, value in milliseconds(model).items()},
                **{f"from_text.{name}": found.speedup.median for name, found in model.from_text.items()},
                **{f"requests.{key}": value for key, value in (row.get("requests") or {}).items()},
                **{
                    f"score.{task}.{metric}": value
                    for task, metrics in (model.scores or {}).items()
                    for metric, value in metrics.items()
                },
                **{f"load.{key}": value for key, value in loading(run, model).items() if key in ("path", "command")},
            }


def _over_kept(model: Model) -> Over | None:
    return known(model.speedup.over_kept) if model.speedup else None


def _retained(model: Model) -> dict[str, float | None]:
    return {
        "retained": model_rows.retained(model),
        **_ends("retained", model_rows.interval(model, "retained")),
        "development": model_rows.development(model),
        "at_least": known(model.retained.at_least) if model.retained else None,
        "development_above_chance": model_rows.development(model, above=True),
        "above_chance": model_rows.above_chance(model),
        **_ends("above_chance", model_rows.interval(model, "above_chance")),
    }


def _ends(name: str, interval: Sequence[float] | None) -> dict[str, float | None]:
    low, high = interval or (None, None)
    return {f"{name}.low": low, f"{name}.high": high}


def write_csv(runs: Sequence[Run], path: Path | None) -> None:
    """One line for each variant; a column that a variant lacks is empty. Without a path, to standard output."""
    records = list(rows(runs))
    columns = list(dict.fromkeys(key for row in records for key in row))
    lines = [csv_line(columns), *(csv_line(row.get(column) for column in columns) for row in records)]
    _write("".join(lines), path)


def write_json_rows(runs: Sequence[Run], path: Path | None) -> None:
    """A list of records. Without a path, to standard output."""
    _write(json.dumps(list(rows(runs)), indent=2, allow_nan=False) + "\n", path)


def _write(text: str, path: Path | None) -> None:
    if path is None:
        sys.stdout.write(text)
    else:
        write_text(path, text)
