"""A results.json of schema 1 or 2 is converted to schema 3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from distill.errors import DataError
from distill.report.read import read_one
from distill.report.schema import validate
from distill.report.upgrade import SCHEMA_1, SCHEMA_2, upgraded

COMMITTED = sorted((Path(__file__).parents[3] / "docs/results").rglob("results.json"))
MEASURED = {"parameters": 1, "size_mib": 1.0, "latency_ms": [], "retained": None, "speedup": None}
SCORE = {"mean": 51.5, "std": None, "by_seed": [51.5]}


def old(stages: tuple[str, ...], models: tuple[str, ...]) -> dict[str, Any]:
    """A document of schema 1 with models such as `student 2x`."""
    numbers = {"seconds": 1.0, "tokens_per_second": None, "peak_memory_mib": 2.0, "energy_joules": None}
    model = {"scheme": "fp32", "backend": "torch", "peak_memory_mib": None, "note": "x", **MEASURED}
    named = [{"name": name, "role": name.split()[0], **model, "scores": {"cola": {"f1": SCORE}}} for name in models]
    return {
        "schema": 1,
        "recipe": "frontier",
        "command": "",
        "version": "0.1.0",
        "seeds": [0],
        "environment": {"cpu": "x", "threads": 2, "torch": "2"},
        "coverage": [{"task": "cola", "split": "train", "rows": 1, "official_rows": 1}],
        "models": named,
        "stages": [{"name": name, **numbers} for name in stages],
    }


def test_every_key_of_schema_1_is_converted() -> None:
    stages = ("finetune_teacher", "prune", "recover/2x", "recover_baseline/2x", "quantize/2x", "evaluate", "export/2x")
    models = ("teacher", "member 2", "student 2x", "pruned 2x", "baseline 2x")
    document = old(stages, models) | {"pruned": [{"target": "2x", "layers": 3, "hidden": 64, "ffn": 128}]}
    assert validate(document, SCHEMA_1) == []
    results = upgraded(document)
    assert validate(results) == []
    assert [(model["name"], model["step"], model["target"], model.get("member")) for model in results["models"]] == [
        ("teacher", "finetune_teacher", None, None),
        ("member 2", "finetune_teacher", None, 2),
        ("student 2x", "recover", "2x", None),
        ("pruned 2x", "prune", "2x", None),
        ("baseline 2x", "recover_baseline", "2x", None),
    ]
    assert all(model["scores"] == {"cola": {"f1": 51.5}} for model in results["models"])
    assert [(stage["name"], stage["target"], stage["kind"]) for stage in results["stages"]] == [
        ("finetune_teacher", None, "train"),
        ("prune", None, "prune"),
        ("recover", "2x", "train"),
        ("recover_baseline", "2x", "train"),
        ("quantize", "2x", "quantize"),
        ("evaluate", None, "evaluate"),
        ("export", "2x", "export"),
    ]
    assert results["pruned"] == [{"step": "prune", "target": "2x", "layers": 3, "hidden": 64, "ffn": 128}]
    assert (results["schema"], results["rules"]) == (3, "before")
    assert upgraded(results) == results


def test_a_document_of_schema_2_lacks_only_the_rules(results: dict[str, Any]) -> None:
    document = {key: value for key, value in results.items() if key != "rules"} | {"schema": 2}
    assert validate(document, SCHEMA_2) == []
    assert upgraded(document) == results | {"rules": "before"}
    assert validate(document | {"rules": "current"}, SCHEMA_2) != []


@pytest.mark.parametrize(
    ("stages", "step"),
    [
        (("adapt", "pretrain", "pretrain_baseline", "finetune_teacher", "finetune", "finetune_baseline"), "finetune"),
        (("finetune_teacher", "gated", "prune", "recover", "recover_baseline", "evaluate"), "recover"),
        (("finetune_teacher", "gated", "prune", "evaluate"), "prune"),
        (("finetune_teacher", "vocabulary", "quantize"), "vocabulary"),
        (("finetune_teacher", "evaluate"), "student"),
    ],
)
def test_the_step_of_a_student_is_the_last_that_made_it(stages: tuple[str, ...], step: str) -> None:
    (model,) = upgraded(old(stages, ("student",)))["models"]
    assert (model["step"], model["target"]) == (step, None)


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.parent.name)
def test_committed_results_are_read(path: Path) -> None:
    results, document = read_one(path), json.loads(path.read_text())
    assert validate(results) == []
    assert results["rules"] == ("current" if document["schema"] == 3 else "before")
    assert [model["name"] for model in results["models"]] == [model["name"] for model in document["models"]]
    steps = {stage["name"] for stage in results["stages"]}
    assert {model["step"] for model in results["models"]} <= steps


def test_a_wrong_document_of_schema_1_is_refused(tmp_path: Path) -> None:
    document = old(("finetune",), ("student",))
    document["models"][0]["step"] = "finetune"
    (tmp_path / "results.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match=r"models\[0\].*'step' was unexpected.*must be of schema 1"):
        read_one(tmp_path / "results.json")
