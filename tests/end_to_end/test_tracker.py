"""Runs with an experiment tracker: what TensorBoard's own reader finds, and trackers that are not installed."""

from __future__ import annotations

import json
import math
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from distill import config
from distill.pipeline import validation
from distill.runtime.storage import atomic, run_folder

SMALL = (
    "limit=smoke", "limit.documents=60", "limit.repeats=1", "tasks.names=[order]", "tasks.max_length=32",
    "corpus.max_length=32", "stages.quantize.schemes=[onnxruntime]", "output=out", "tracker=tensorboard",
    "pipeline=[adapt,pretrain,finetune_teacher,finetune,evaluate]", "stages.evaluate.quantized=null",
    "stages.evaluate.baseline=null", "stages.evaluate.shapes=[[1,16]]",
)  # fmt: skip


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Name -> (step, value) of all scalars that TensorBoard reads below a folder."""
    found: dict[str, list[tuple[int, float]]] = {}
    for events in {file.parent for file in folder.rglob("events.out.tfevents.*")}:
        reader = EventAccumulator(str(events), size_guidance={"scalars": 0})
        reader.Reload()
        found |= {tag: [(e.step, e.value) for e in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}
    return found


@pytest.mark.slow
def test_a_tracker_gets_the_losses_of_every_training_and_the_final_table(run: Any, tmp_path: Path) -> None:
    results = run(tmp_path, "distilbert", *SMALL, onnx=False)
    found = scalars(tmp_path / "out" / "tracker")
    before = 0
    for stage in ("adapt", "pretrain", "finetune_teacher/order", "finetune/order"):
        manifest = atomic.read_json(tmp_path / "out" / stage / run_folder.MANIFEST)
        if "skipped" in manifest:
            continue
        last = manifest["log"][-1]
        assert {f"{stage}/{term}" for term in last["terms"]} <= found.keys()
        step, loss = found[f"{stage}/loss"][-1]
        assert step == before + last["step"]
        assert loss == pytest.approx(last["loss"], rel=1e-5)
        assert found[f"{stage}/lr"][-1][1] >= 0
        assert found[f"{stage}/tokens_per_second"][-1][1] > 0
        before += manifest["steps"]
    for model in results["models"]:
        name = f"results/{model['name']} {model['backend']} {model['scheme']}"
        ((step, mib),) = found[f"{name}/mib"]
        assert step == before
        assert math.isclose(mib, model["size_mib"], rel_tol=1e-5)
    assert json.loads((tmp_path / "out" / "results.json").read_text())["models"] == results["models"]


def test_a_tracker_that_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = sys.modules["distill.pipeline.validation.sources"]
    monkeypatch.setattr(sources, "find_spec", lambda name: None if name == "mlflow" else find_spec(name))
    (message,) = validation.settings(config.load_config(["recipe=distilbert", "tracker=mlflow"]), "distilbert")
    assert message == (
        "tracker: got mlflow; needs its package; run pip install -c constraints.txt -e '.[mlflow]' in a "
        "checkout of distill, or leave it out"
    )
