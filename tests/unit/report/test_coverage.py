"""Which interval over seeds includes the truth: the simulation of benchmarks/coverage.py, with fewer experiments."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import coverage
from benchmarks.tables.runs import ROOT

ENOUGH = 0.9
"""Of 400 experiments an interval that includes the truth in 93% has less once in 100 simulations."""


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str, int], dict[str, Any]]:
    found = coverage.simulated(400, 200)["rows"]
    return {(row["measure"], row["training"], row["seeds"]): row["ways"] for row in found}


@pytest.mark.slow
def test_the_committed_simulation_is_that_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two seeds and normal trainings, which are simulated first; within the roundings of another machine."""
    monkeypatch.setattr(coverage, "TRAININGS", {"normal": coverage.TRAININGS["normal"]})
    committed = json.loads((ROOT / "benchmarks/results/coverage.json").read_text())
    made = coverage.simulated(coverage.SIMULATIONS, coverage.RESAMPLES, (2,))
    facts = {*made} - {"rows"}
    assert {key: committed[key] for key in facts} == {key: made[key] for key in facts}
    for ours, theirs in zip(made["rows"], committed["rows"], strict=False):
        for way, values in ours["ways"].items():
            assert theirs["ways"][way]["coverage"] == pytest.approx(values["coverage"], abs=0.002)
            assert theirs["ways"][way]["width"] == pytest.approx(values["width"], rel=0.01)


@pytest.mark.parametrize("way", ["hierarchical", "seeds_alone", "deviation"])
def test_what_is_reported_alone_includes_the_truth(rows: dict[tuple[str, str, int], dict[str, Any]], way: str) -> None:
    """If one of them does after a change, the choice of the interval is to be made again."""
    known = [ways for (_, training, _), ways in rows.items() if training != "collapsing"]
    least, ours = (min(ways[each]["coverage"] for ways in known) for each in (way, "rows_and_seeds"))
    assert least < ENOUGH < ours
