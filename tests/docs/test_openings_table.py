"""The page of when committed runs read the rows that they report."""

from __future__ import annotations

import runpy
from pathlib import Path

from benchmarks.openings_table import openings_page
from tests.decoded import decoded

complete = runpy.run_path(str(Path(__file__).parents[1] / "unit/report/conftest.py"))["complete"]
LINE = runpy.run_path(str(Path(__file__).parents[1] / "unit/report/test_openings.py"))["LINE"]


def cells(page: str) -> list[list[str]]:
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_opening_has_its_run_moment_and_commit() -> None:
    first = [
        LINE | {"commit": "abcdef012345", "dirty": False},
        LINE | {"commit": "abcdef012345", "dirty": False, "task": "rte"},
    ]
    again = LINE | {"time": "2026-01-03T00:00:00+00:00", "purpose": "choose a rate", "settings": "2" * 16}
    again |= {"commit": "abcdef012345", "dirty": True}
    runs = {
        "one": decoded(complete() | {"openings": [*first, again]}),
        "two": decoded(complete() | {"openings": [LINE]}),
        "old": decoded(complete()),
    }
    page = openings_page(runs)
    every = cells(page)
    for row in (
        ["one", LINE["time"], "abcdef012345", "report", "cola validation; rte validation"],
        ["one", again["time"], "abcdef012345 (with changes)", "choose a rate", "cola validation"],
        ["two", LINE["time"], "distill 0.1.0", "report", "cola validation"],
        ["cola validation", "0" * 16, "1,043", "3", "2", "2"],
        ["rte validation", "0" * 16, "1,043", "1", "1", "1"],
    ):
        assert row in every, page
    assert "These runs were made before there was a record: old." in page


def test_runs_without_any_record_are_named() -> None:
    page = openings_page({"old": decoded(complete())})
    assert cells(page) == []
    assert page.endswith("These runs were made before there was a record: old.\n")
