"""Module replacing with two processes: all of them draw the same layers, and exchange gradients of layers not drawn."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests import tiny
from tests.end_to_end.test_processes import mean_terms, trained

pytestmark = pytest.mark.slow


def test_two_processes_equal_one(tmp_path: Path) -> None:
    texts, labels = tiny.SENTENCES, ["bad", "good"]
    sizes = {"hidden_size": 32, "num_hidden_layers": 4, "length": 66, "std": 0.2, "id2label": dict(enumerate(labels))}
    given = tiny.save(tmp_path / "given", "bert", "SequenceClassification", **sizes)
    rows = [{"text": f"{texts[n % 8]} {n}", "label": labels[n % 2]} for n in range(56)]
    (tmp_path / "own.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = "stages.replace"
    settings = [
        "recipe=theseus", "limit.steps=8", "limit.examples=56", "precision=fp32", "threads=1", "teacher=hub",
        f"teacher.name={given}", "tasks=own", f"tasks.train={tmp_path / 'own.jsonl'}", "tasks.max_length=32",
        "student.num_hidden_layers=2", "pipeline=[finetune_teacher,replace]", f"{own}.batch.examples=7",
        f"{own}.replacing=0.2", f"{own}.optimizer._target_=torch.optim.SGD", f"~{own}.optimizer.betas",
        f"~{own}.optimizer.eps", f"{own}.optimizer.lr=0.05",
    ]  # fmt: skip
    one, two = (run / "replace" / "own" for run in trained(tmp_path, settings))
    logs = [json.loads((run / "manifest.json").read_text()) for run in (one, two)]
    assert logs[0]["steps"] == logs[1]["steps"] == 8
    assert mean_terms(logs[1]) == pytest.approx(mean_terms(logs[0]), rel=1e-3)
    first, ours, theirs = (
        load_file(given / "model.safetensors"),
        *(load_file(run / "model.safetensors") for run in (one, two)),
    )
    layers = [name for name in ours if ".layer." in name]
    for name in ours.keys() - set(layers):
        np.testing.assert_array_equal(ours[name], first[name])
    moved = np.concatenate([(theirs[name] - ours[name]).ravel() for name in layers])
    start = {name: name.replace("layer.1.", "layer.3.") for name in layers}
    far = np.concatenate([(ours[name] - first[start[name]]).ravel() for name in layers])
    assert np.linalg.norm(far) > 0.01
    assert np.linalg.norm(moved) < 1e-2 * np.linalg.norm(far)
