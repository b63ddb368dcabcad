"""The schema accepts a complete results.json and refuses every violation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from distill.evaluation import results as record
from distill.report.checked import validate
from distill.runtime.storage import structs

Results = dict[str, Any]
COMMITTED = Path(__file__).parents[3] / "docs" / "results"


def test_complete_is_accepted(results: Results) -> None:
    assert validate(results) == []


def test_committed_results_are_the_same_after_they_were_decoded() -> None:
    files = sorted(COMMITTED.rglob("results.json"))
    assert files
    for file in files:
        document = json.loads(file.read_text(encoding="utf-8"))
        assert validate(document) == [], file
        assert structs.plain(msgspec.convert(document, record.Results)) == document, file


def test_extras_are_optional(results: Results) -> None:
    for key in ("smoke", "teacher_name", "notes"):
        del results[key]
    for model in results["models"]:
        for key in ("path", "gmacs", "macro", "throughput_per_second", "calibration_error"):
            del model[key]
    assert validate(results) == []


def test_failed_row_needs_only_its_identity(results: Results) -> None:
    row = {"name": "student", "role": "student", "scheme": "int8", "backend": "openvino"}
    row |= {"step": "finetune", "target": None}
    results["models"].append(row)
    assert "models[11]" in validate(results)[0]
    row["failed"] = "out of memory"
    assert validate(results) == []


VARIANT = {"name": "student", "scheme": "int8", "backend": "onnxruntime"}
TEST = {
    "a": VARIANT,
    "b": VARIANT | {"name": "baseline"},
    "difference": 1.0,
    "ci95": [0.1, 1.9],
    "p": 0.03,
    "p_corrected": 0.06,
    "test": "mcnemar",
    "distinguishable": False,
    "scope": "cola",
}


def test_statistics_are_accepted(results: Results) -> None:
    results |= {"chance": {"sst2": {"accuracy": 50.9}}, "near_chance": ["wnli"], "tests": [TEST]}
    results |= {"detectable": {"sst2": 2.1, "stsb": None}}
    bins = [[0.6, 0.5, 10], [0.9, 1.0, 20]]
    results["models"][4] |= {
        "near_constant": ["wnli"],
        "score_ci95": {"sst2": {"accuracy": [80.0, 85.0]}},
        "calibration": {
            "sst2": {"ece": 0.1, "temperature": 1.3, "ece_scaled": 0.02, "bins": bins, "bins_scaled": bins},
            "cola": {"ece": 0.1, "temperature": None, "ece_scaled": None, "bins": bins},
        },
        "by_length": {"sst2": [{"from": 3, "to": 12, "rows": 300, "scores": {"accuracy": 83.0}}]},
    }
    results["models"][4]["retained"] |= {"above_chance": 90.0, "above_chance_ci95": [88.0, 92.0]}
    results["models"][5]["retained"] |= {"above_chance": None, "above_chance_ci95": None}
    assert validate(results) == []


MUTATIONS: dict[str, tuple[Callable[[Results], Any], str]] = {
    "version of schema": (lambda r: r.update(schema=1), "schema"),
    "misspelt key": (lambda r: r.update(sedes=[1]), "sedes"),
    "missing key": (lambda r: r.pop("coverage"), "coverage"),
    "no seeds": (lambda r: r.update(seeds=[]), "seeds"),
    "model without a step": (lambda r: r["models"][4].pop("step"), "models[4]"),
    "member that is not counted from 1": (lambda r: r["models"][0].update(member=0), "models[0].member"),
    "stage without a kind": (lambda r: r["stages"][0].update(kind=""), "stages[0].kind"),
    "fingerprint that is no text": (lambda r: r.update(fingerprints={"data": 1}), "fingerprints.data"),
    "missing key of a model": (lambda r: r["models"][4].pop("speedup"), "models[4]"),
    "unknown role": (lambda r: r["models"][0].update(role="tutor"), "models[0].role"),
    "unknown backend": (lambda r: r["models"][0].update(backend="tensorrt"), "models[0].backend"),
    "text for a number": (lambda r: r["models"][0].update(macro="80"), "models[0].macro"),
    "score without its metric": (lambda r: r["models"][0]["scores"].update(cola=51.0), "scores.cola"),
    "score that is no number": (lambda r: r["models"][0]["scores"]["cola"].update(matthews={"mean": 1.0}), "matthews"),
    "unknown key of retained": (lambda r: r["models"][5]["retained"].update(micro=1.0), "retained"),
    "interval of three": (lambda r: r["models"][5]["retained"].update(ci95=[1, 2, 3]), "ci95"),
    "interval of a score upside down": (
        lambda r: r["models"][0].update(score_ci95={"cola": {"matthews": [2.0, 1.0]}}),
        "score_ci95.cola.matthews",
    ),
    "interval of a score that is none": (
        lambda r: r["models"][0].update(score_ci95={"cola": {"matthews": 1.0}}),
        "score_ci95.cola.matthews",
    ),
    "bin without its rows": (
        lambda r: r["models"][0].update(
            calibration={"cola": {"ece": 0.1, "temperature": None, "ece_scaled": None, "bins": [[0.5, 0.5]]}}
        ),
        "calibration.cola.bins",
    ),
    "test without a p": (lambda r: r.update(tests=[{k: v for k, v in TEST.items() if k != "p"}]), "tests[0]"),
    "interval upside down": (lambda r: r["models"][5]["retained"].update(ci95=[96.0, 94.0]), "ci95"),
    "row of coverage without a fact of its task": (lambda r: r["coverage"][0].pop("in_headline"), "in_headline"),
    "negative rows": (lambda r: r["coverage"][0].update(rows=-1), "coverage[0].rows"),
    "not a number": (lambda r: r["models"][0].update(macro=float("nan")), "models[0].macro"),
    "infinite": (lambda r: r["stages"][0].update(seconds=float("inf")), "stages[0].seconds"),
    "threads that are no number": (lambda r: r["environment"].update(threads=None), "environment.threads"),
    "machine without its threads": (lambda r: r["environment"].pop("threads"), "environment"),
    "prediction without its inputs": (
        lambda r: r.update(
            pruned=[{"step": "prune", "target": None, "layers": 3, "hidden": 8, "ffn": 9, "predicted_ms": 1}]
        ),
        "pruned[0]",
    ),
    "nested fact": (lambda r: r["environment"].update(cpu={"name": "x"}), "environment.cpu"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutation_is_refused(results: Results, name: str) -> None:
    mutate, place = MUTATIONS[name]
    mutate(results)
    messages = validate(results)
    assert len(messages) == 1
    assert place in messages[0]
    assert len(messages[0]) < 300
