"""Runs with a budget: what is made and exported follows from the scores, and what was tried is reported."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import distill
from distill.config.schemes import Form
from distill.deploy.export.push import MARKER
from distill.pipeline.budget import Ladder
from distill.runtime.storage import atomic, run_folder

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")]
INT8 = Form("onnxruntime", "int8", "onnxruntime")
SMALL = (
    "limit=smoke",
    "limit.documents=60",
    "limit.repeats=1",
    "stages.evaluate.shapes=[[1,16]]",
    "target.shape=[1,16]",
)
SETTINGS = (
    *SMALL, "stages.quantize.schemes=[onnxruntime]", "stages.prune.dimensions=[layers,ffn]", "tasks.names=[order]",
    "output=out",
)  # fmt: skip


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`scored(teacher, **speedups)`: the teacher in int8 is twice as fast, and models retain these percentages."""

    def set_up(retained: dict[str, float]) -> None:
        monkeypatch.setattr(Ladder, "speedups", lambda self: (2.0, INT8, 9.0))
        monkeypatch.setattr(Ladder, "retained", lambda self, step, form: retained[step.target])
        monkeypatch.setattr(Ladder, "enough", lambda self, kept: kept >= 97)

    return set_up


def students(results: dict[str, Any]) -> set[str | None]:
    return {model["target"] for model in results["models"] if model["role"] == "student"}


def test_a_teacher_that_is_fast_enough_is_exported_and_uploaded_and_nothing_is_pruned(
    hub: Any, scored: Any, run: Any, tmp_path: Path
) -> None:
    scored({"": 99.0})
    results = run(tmp_path, "auto", *SETTINGS, "target.speedup=1.9", "push=me/x")
    assert hub.repositories.keys() == {"me/x"}
    assert "model.safetensors" in hub.repositories["me/x"]
    out = tmp_path / "out"
    assert not (out / "prune").exists()
    assert students(results) == {None}
    assert (
        "The teacher in onnxruntime int8 is estimated at 2.00x, and retains 99.0% on the development rows."
        in (results["notes"])
    )
    assert distill.load(out / "export" / "order", threads=1).predict([("a kettle", "the tea")])


def test_faster_models_are_made_one_from_the_other_until_one_retains_too_little(
    hub: Any, scored: Any, run: Any, tmp_path: Path
) -> None:
    """Only those that were made are uploaded, and the same command again does nothing again."""
    scored({"": 99.0, "3x": 98.0, "6x": 90.0})
    earlier = {MARKER: json.dumps({"made_by": "distill", "files": ["model.safetensors"]}).encode()}
    unmade = {".gitattributes": b"", "model.safetensors": b"old", **earlier}
    hub.repositories["me/x-9x-order"] = dict(unmade)
    given = ("target.speedup=[1.5,3,6,9]", "push=me/x")
    results = run(tmp_path, "auto", *SETTINGS, *given)
    assert hub.repositories.keys() == {"me/x-3x-order", "me/x-6x-order", "me/x-9x-order"}
    assert hub.repositories["me/x-9x-order"] == unmade
    assert all("model.safetensors" in hub.repositories[f"me/x-{label}-order"] for label in ("3x", "6x"))
    out = tmp_path / "out"
    assert students(results) == {"3x", "6x"}
    assert "The fastest that retains at least 97% on the development rows is 3x." in results["notes"]
    assert {path.name for path in (out / "export").iterdir()} == {"3x", "6x"}
    assert not (out / "prune" / "9x").exists()
    assert set(atomic.read_json(out / "ladder.json")["took"]) == {"teacher", "3x", "6x"}
    starts = {label: atomic.read_json(out / "prune" / label / run_folder.MANIFEST) for label in ("3x", "6x")}
    assert {label: list(cut["record"]["key"]["inputs"]) for label, cut in starts.items()} == {
        "3x": ["finetune_teacher"],
        "6x": ["recover/3x"],
    }
    before = {path: path.stat().st_mtime_ns for path in out.rglob(run_folder.MANIFEST)}
    assert run(tmp_path, "auto", *SETTINGS, *given) == results
    assert {path: path.stat().st_mtime_ns for path in out.rglob(run_folder.MANIFEST)} == before


def test_baselines_are_cut_before_the_time_of_their_training_is_estimated(
    scored: Any, run: Any, tmp_path: Path
) -> None:
    scored({"": 99.0, "3x": 98.0, "6x": 98.0})
    stages = ["finetune_teacher", "quantize_teacher", "prune", "recover", "recover_baseline", "quantize", "evaluate"]
    with_baseline = [f"pipeline=[{','.join(stages)}]", "stages.evaluate.baseline=recover_baseline"]
    results = run(tmp_path, "auto", *SETTINGS, "target.speedup=[3,6]", *with_baseline)
    assert {model["target"] for model in results["models"] if model["role"] == "baseline"} == {"3x", "6x"}
    cut = atomic.read_json(tmp_path / "out" / "prune_recover_baseline" / "6x" / run_folder.MANIFEST)
    assert sorted(cut["record"]["key"]["inputs"]) == ["prune/6x", "recover_baseline/3x"]


def test_the_teacher_is_scored_as_the_budget_measured_it(scored: Any, run: Any, tmp_path: Path) -> None:
    scored({"": 99.0, "4x": 90.0})
    results = run(tmp_path, "auto", *SETTINGS, "target.speedup=8")
    assert "The fastest that retains at least 97% on the development rows is the teacher itself." in results["notes"]
    assert {path.name for path in (tmp_path / "out" / "export").iterdir()} == {"4x"}
    (path,) = {m["path"] for m in results["models"] if (m["role"], m["scheme"]) == ("teacher", "int8")}
    assert path.startswith("quantize_teacher/"), "not the files that the budget decided about"


def test_a_target_without_time_is_not_trained(
    scored: Any, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored({"": 90.0})
    monkeypatch.setattr(Ladder, "estimate", lambda self, label: 3000.0)
    results = run(tmp_path, "auto", *SETTINGS, "target.speedup=4", "budget.minutes=10")
    (tried,) = [note for note in results["notes"] if note.startswith("2x")]
    assert re.fullmatch(
        r"2x is not trained: that would take an estimated 50\.0 minutes, and \d\.\d minutes were left\.", tried
    )
    assert "No model was made that retains at least 97% on the development rows." in results["notes"]
