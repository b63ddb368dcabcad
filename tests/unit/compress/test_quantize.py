"""int8 forms: they load with plain transformers, keep the head, are smaller and answer alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from distill.compress.quantize import bitsandbytes_int8, onnxruntime_int8
from distill.evaluate.engines import onnx_engine, torch_engine
from distill.evaluate.latency import synthetic
from distill.export.onnx import export_onnx

Make = Callable[..., Path]


def _agree(ours: np.ndarray, wanted: np.ndarray) -> float:
    return float((ours.argmax(axis=1) == wanted.argmax(axis=1)).mean())


@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta"])
def test_bitsandbytes_reloads_bit_exact_with_the_head_in_float(
    classifier: Make, family: str, tmp_path: Path, sentences: list[str]
) -> None:
    folder, out = classifier(family), tmp_path / "int8"
    bitsandbytes_int8(folder, out)
    stored, before = load_file(out / "model.safetensors"), load_file(folder / "model.safetensors")
    quantized = {name for name, value in stored.items() if value.dtype == torch.int8}
    head = {name for name in before if "classifier" in name}
    assert len(quantized) >= 12  # 6 products in each of 2 layers
    assert all(torch.equal(stored[name], before[name]) for name in head)
    assert head
    first, second = (AutoModelForSequenceClassification.from_pretrained(out).eval() for _ in range(2))
    batch = synthetic((64, 16), 100)
    with torch.no_grad():
        ours, again = (
            model(**{key: torch.from_numpy(value) for key, value in batch.items()}).logits for model in (first, second)
        )
    assert torch.equal(ours, again)
    wanted = torch_engine("x", folder, scheme="fp32", device="cpu", threads=1).run(batch)
    assert _agree(ours.numpy(), wanted) >= 0.9
    assert not np.array_equal(ours.numpy(), wanted)
    engine = torch_engine("x", out, scheme="int8", device="cpu", threads=1)
    assert np.array_equal(engine.run(batch), ours.numpy())
    tokens = AutoTokenizer.from_pretrained(out)(sentences[0])
    assert tokens == AutoTokenizer.from_pretrained(folder)(sentences[0])


def test_bitsandbytes_says_nothing(classifier: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bitsandbytes_int8(classifier(), tmp_path / "int8")
    engine = torch_engine("x", tmp_path / "int8", scheme="int8", device="cpu", threads=1)
    engine.run(synthetic((1, 8), 50))
    shown = capfd.readouterr()
    # transformers' own progress bars are switched off for a whole run, not here.
    lines = [line for line in (shown.out + shown.err).splitlines() if "it/s" not in line]
    assert [line for line in lines if line.strip() and "Loading weights" not in line] == []


def test_onnxruntime_int8_is_smaller_and_agrees(
    classifier: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, whole, small = classifier(), tmp_path / "model.onnx", tmp_path / "int8.onnx"
    export_onnx(folder, whole)
    capfd.readouterr()
    onnxruntime_int8(whole, small)
    assert capfd.readouterr() == ("", "")
    assert small.stat().st_size < 0.6 * whole.stat().st_size
    assert sorted(path.name for path in tmp_path.iterdir()) == ["int8.onnx", "model.onnx"]
    batch = synthetic((64, 16), 100)
    wanted = onnx_engine("x", whole, scheme="fp32", threads=1).run(batch)
    ours = onnx_engine("x", small, scheme="int8", threads=1).run(batch)
    assert _agree(ours, wanted) >= 0.9
    assert not np.array_equal(ours, wanted)
