"""docs/predict.mjs: transformers.js loads an exported folder as it is. Needs Node.js and `make .node/.installed`."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest
import transformers

from distill.compression.quantization.quantize import MAKE
from distill.deploy.export.onnx import export_onnx
from distill.inference import latency

ROOT = Path(__file__).resolve().parents[2]
MODULES = ROOT / ".node" / "node_modules"
TINY = runpy.run_path(str(ROOT / "tests" / "tiny.py"))
FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "onnx/model.onnx", "onnx/model_int8.onnx")
"""The files that docs/deploy/browser.md says to copy."""
TEXTS = ["the small boat crossed the harbour", "snow begins", "storm " * 30]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("node") is None or not (MODULES / "@huggingface" / "transformers").is_dir(),
        reason="needs Node.js, and transformers.js by `make .node/.installed`",
    ),
]


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
def test_transformers_js_answers_as_transformers_does(family: str, tmp_path: Path) -> None:
    folder, script = tmp_path / "model", tmp_path / "predict.mjs"
    labels = {0: "calm", 1: "storm", 2: "snow"}
    numbers = {name: number for number, name in labels.items()}
    named = {"num_labels": 3, "id2label": labels, "label2id": numbers}
    layers = 2 if family == "modernbert" else 1  # whose layers are not all of one kind
    TINY["save"](folder, family, "SequenceClassification", length=45, std=0.4, num_hidden_layers=layers, **named)
    (folder / "onnx").mkdir()
    export_onnx(folder, folder / "onnx" / "model.onnx")
    rows = [latency.synthetic((1, 16), 20, seed=1)]
    MAKE["onnxruntime"](folder / "onnx" / "model.onnx", folder / "onnx" / "model_int8.onnx", [], rows)
    copied = tmp_path / "copied"
    (copied / "onnx").mkdir(parents=True)
    for name in FILES:
        shutil.copy(folder / name, copied / name)
    shutil.copy(ROOT / "docs" / "predict.mjs", script)
    (tmp_path / "node_modules").symlink_to(MODULES)  # where Node.js looks for packages of the script
    expected = transformers.pipeline("text-classification", str(folder), top_k=None, device="cpu")(TEXTS)
    for dtype, tolerance in (("fp32", 1e-4), ("int8", 0.2)):
        done = subprocess.run(["node", script, copied, dtype, *TEXTS], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        for found, wanted in zip(json.loads(done.stdout), expected, strict=True):
            scores = {row["label"]: row["score"] for row in found}
            assert scores == pytest.approx({row["label"]: row["score"] for row in wanted}, abs=tolerance)
