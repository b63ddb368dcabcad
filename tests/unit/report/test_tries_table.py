"""The trainings of which one was kept, in a report."""

from __future__ import annotations

from typing import Any

from distill.report.detail import tries_table
from distill.report.markdown import text
from distill.report.page import run_page
from distill.report.variants import Run
from tests.decoded import decoded

RATES = {
    "task": "a",
    "chance": 50.0,
    "tries": [
        {"lr": 0.5e-4, "seed": 0, "score": 61.25, "kept": False},
        {"lr": 1e-4, "seed": 0, "score": 70.5, "kept": True},
        {"lr": 2e-4, "seed": 0, "score": None, "kept": False, "failed": "loss: got nan"},
    ],
}
ONE: dict[str, Any] = {"task": "b", "chance": 50.0, "tries": [{"lr": 1e-4, "seed": 0, "score": 70.5, "kept": True}]}
COLLAPSED = ONE | {"task": "c", "chance": 80.0, "member": 2}
COLLAPSED |= {"tries": [ONE["tries"][0] | {"kept": kept, "collapsed": True} for kept in (True, False)]}


def test_every_try_and_every_collapse_is_a_row(results: dict[str, Any]) -> None:
    results["stages"][1] |= {"target": "2x", "tried": [RATES, ONE, COLLAPSED]}
    table = tries_table(decoded(results))
    assert table.rows == [
        ("finetune 2x", "a", "5e-05", "0", "", "61.2", "50.0"),
        ("finetune 2x", "a", "0.0001", "0", "kept", "70.5", "50.0"),
        ("finetune 2x", "a", "0.0002", "0", "loss: got nan", "-", "50.0"),
        ("finetune 2x", "c, member 2", "0.0001", "0", "collapsed, kept", "70.5", "80.0"),
        ("finetune 2x", "c, member 2", "0.0001", "0", "collapsed", "70.5", "80.0"),
    ]
    assert "Trainings that were tried" in text(run_page(Run("", decoded(results)), ""))


def test_without_tries_there_is_no_table(results: dict[str, Any]) -> None:
    results["stages"][1]["tried"] = [ONE]
    assert "Trainings that were tried" not in text(run_page(Run("", decoded(results)), ""))
