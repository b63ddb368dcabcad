"""Gains over controls of several seeds, by hand from the stored tests."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from distill.report import gains, page
from distill.report.seeds import over_seeds
from tests.decoded import decoded_all

Results = dict[str, Any]
FORM = {"backend": "torch", "scheme": "fp32"}


def seeded(results: Results, seed: int, gain: float) -> Results:
    """A run with another seed, in which the test of baseline and student, in this order, found this gain."""
    run = copy.deepcopy(results)
    run["seeds"], run["command"] = [seed], f"python -m distill recipe=distilbert seed={seed} tasks=glue"
    test = {"a": {"name": "baseline", **FORM}, "b": {"name": "student", **FORM}, "scope": None, "test": "bootstrap"}
    test |= {"difference": -gain, "ci95": [-gain - 1, -gain + 1], "p": 0.01, "distinguishable": True}
    run["tests"] = [test]
    run["models"] = [m for m in run["models"] if (m["backend"], m["scheme"]) == ("torch", "fp32")]
    return run


def test_gains_are_paired_by_seed(results: Results) -> None:
    runs = decoded_all([seeded(results, 0, 3.0), seeded(results, 1, 9.0)])
    made = gains.table(runs)
    assert made is not None
    low, high = over_seeds([3.0, 9.0], [(2.0, 4.0), (8.0, 10.0)]) or (0.0, 0.0)
    assert low < 0 < high  # each seed's own interval excludes 0
    assert made.rows == [
        ("distilbert", "student fp32 torch", "baseline", f"+6.0 [{low:+.1f}, {high:+.1f}] (+3.0, +9.0)", "0, 1")
    ]
    assert made in page.overview_page(runs)[0]


def test_of_one_run_it_is_the_interval_over_rows(results: Results) -> None:
    made = gains.table(decoded_all([seeded(results, 0, 3.0)]))
    assert made is not None
    assert made.rows[0][3] == "+3.0 [+2.0, +4.0]"


@pytest.mark.parametrize("lacks", ["tests", "baseline"])
def test_without_a_tested_control_there_is_no_table(results: Results, lacks: str) -> None:
    run = seeded(results, 0, 3.0)
    run["tests"] = [] if lacks == "tests" else run["tests"]
    run["models"] = [m for m in run["models"] if lacks == "tests" or m["role"] != "baseline"]
    assert gains.table(decoded_all([run])) is None
