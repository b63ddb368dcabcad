"""Which runs are compared, and which are seeds of one another."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from distill.config.free import FREE
from distill.errors import ConfigError
from distill.evaluation.results import Results
from distill.report.choose import parsed
from distill.report.overview import grouped
from distill.report.variants import Run, groups
from tests.decoded import decoded
from tests.enriched import enriched


def opening(results: Any, fingerprint: str) -> list[dict[str, Any]]:
    rows = [row for row in results["coverage"] if row["split"] != "train" and row["rows"]]
    known = {"time": "2026-01-01T00:00:00Z", "settings": "a", "purpose": "", "command": "c", "version": "0.1.0"}
    known |= {"commit": None, "dirty": None, "others": None}
    return [
        known | {"task": r["task"], "split": r["split"], "rows": r["rows"], "fingerprint": fingerprint} for r in rows
    ]


def run(results: Any, folder: str, rows: str | None, teacher: str = "t") -> Run:
    made = enriched(results)
    if rows is not None:
        made |= {"openings": opening(made, rows), "fingerprints": {"teacher": teacher}}
    return Run(folder, decoded(made))


def test_runs_on_other_rows_or_of_another_teacher_of_one_name_are_not_compared(results: Any) -> None:
    every = [run(results, "a", "1"), run(results, "b", "2"), run(results, "c", "1"), run(results, "d", "1", "other")]
    assert sorted(len(group.runs) for group in groups(every)) == [1, 1, 2]
    older = [*every, run(results, "e", None)]  # its rows are not known
    assert [len(group.runs) for group in groups(older)] == [5]


@pytest.mark.parametrize("setting", [*sorted({*FREE} - {"threads"}), "++seed"])
def test_settings_that_train_nothing_leave_seeds_together(setting: str, results: Any) -> None:
    seeds: list[Results] = []
    for seed in range(3):
        made = copy.deepcopy(results) | {"seeds": [seed]}
        word = f"{setting}={seed}" if setting == "++seed" else f"seed={seed} {setting}=v{seed}"
        made["command"] = f"python -m distill recipe=distilbert tasks=glue {word}"
        seeds.append(decoded(made))
    assert [len(runs) for _, runs in grouped(seeds)] == [3]
    seeds[0] = decoded(
        copy.deepcopy(results) | {"seeds": [0], "command": "python -m distill recipe=distilbert seed=0 x=1"}
    )
    assert sorted(len(runs) for _, runs in grouped(seeds)) == [1, 2]


@pytest.mark.parametrize("word", ["retained=0.97", "above_chance=1"])
def test_a_share_is_no_percentage(word: str) -> None:
    with pytest.raises(
        ConfigError, match=f"got {word}; must be a percentage, above 1, such as {word.partition('=')[0]}=97"
    ):
        parsed([word])
