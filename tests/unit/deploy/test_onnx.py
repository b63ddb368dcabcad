"""ONNX files against the transformers model, over batch sizes, lengths and padding."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from distill.deploy.export.onnx import export_heads, export_onnx, heads_parity, onnx_parity
from distill.errors import UserError
from distill.inference.latency import synthetic
from distill.inference.runners import onnx_runner, torch_runner
from tests import tiny

Make = Callable[..., Path]


@pytest.fixture(scope="module")
def exported(classifier: Make, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(folder, ONNX file) of one family; the contract test of families exports all of them."""
    folder, path = classifier("bert", 3), tmp_path_factory.mktemp("onnx") / "model.onnx"
    export_onnx(folder, path)
    return folder, path


def test_one_file_outputs_the_logits_of_torch_at_any_shape(exported: tuple[Path, Path]) -> None:
    folder, path = exported
    assert [entry.name for entry in path.parent.iterdir()] == ["model.onnx"]
    assert onnx_parity(folder, path) < 1e-5
    ours = onnx_runner("x", path, scheme="fp32", threads=1)
    theirs = torch_runner("x", folder, scheme="fp32", device="cpu", threads=1)
    assert (ours.backend, ours.scheme) == ("onnxruntime", "fp32")
    for shape in ((1, 1), (3, 100), (7, 5)):
        batch = synthetic(shape, 100)
        batch["attention_mask"][:, shape[1] // 2 + 1 :] = 0
        expected = theirs.run({key: value for key, value in batch.items() if key in _inputs(path)})
        assert np.abs(ours.run(batch) - expected).max() < 1e-5


def _inputs(path: Path) -> list[str]:
    return [entry.name for entry in onnx.load(path).graph.input]


def test_garbage_in_padding_changes_nothing(exported: tuple[Path, Path]) -> None:
    _, path = exported
    run = onnx_runner("x", path, scheme="fp32", threads=1).run
    batch = synthetic((2, 12), 100)
    batch["attention_mask"][:, 7:] = 0
    before = run(batch)
    batch["input_ids"][:, 7:] = 42
    assert np.array_equal(run(batch), before)


@pytest.mark.slow
def test_an_export_leaves_nothing_in_memory(classifier: Make, tmp_path: Path) -> None:
    """torch keeps, for each program, what it computed of symbolic shapes: thousands of objects for a tiny model."""

    def kept() -> int:
        gc.collect()
        return sum(type(each).__name__ == "_PySymInputStub" for each in gc.get_objects())

    folder, before = classifier("bert", 3), kept()
    export_onnx(folder, tmp_path / "model.onnx")
    assert kept() == before


@pytest.mark.slow
def test_a_model_too_large_for_one_file_is_refused(
    classifier: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.onnx._internal.exporter import _onnx_program

    monkeypatch.setattr(_onnx_program, "_LARGE_MODEL_THRESHOLD", 1000)
    with pytest.raises(UserError, match="got a model too large for one ONNX file"):
        export_onnx(classifier("bert", 3), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_different_model_is_refused(exported: tuple[Path, Path], tmp_path: Path) -> None:
    folder, path = exported
    model = onnx.load(path)
    head = [node for node in model.graph.node if node.op_type == "Gemm"][-1]
    bias = next(value for value in model.graph.initializer if value.name == head.input[2])
    shifted = onnx.numpy_helper.to_array(bias) + np.float32([0, 0, 0.01])
    bias.CopyFrom(onnx.numpy_helper.from_array(shifted, bias.name))
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(UserError, match=r"differ from torch's by 0\.01"):
        onnx_parity(folder, tmp_path / "other.onnx")


@pytest.mark.slow
def test_the_export_prints_nothing(classifier: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = classifier()
    capfd.readouterr()
    export_onnx(folder, tmp_path / "model.onnx")
    shown = capfd.readouterr()
    # A run switches the progress bars of transformers off; this test does not.
    lines = [line for line in shown.err.splitlines() if "Loading weights" not in line]
    assert "".join(lines).strip() == ""
    assert shown.out == ""


@pytest.mark.slow
def test_heads_of_a_tokenizer_without_token_types_have_no_such_input(tmp_path: Path) -> None:
    """As a file of one head: a user of the tokenizer has none to give."""
    folders = {name: tiny.save(tmp_path / name, "bert", "SequenceClassification") for name in ("a", "b")}
    for folder in folders.values():
        file = folder / "tokenizer_config.json"
        settings = json.loads(file.read_text())
        file.write_text(json.dumps(settings | {"model_input_names": ["input_ids", "attention_mask"]}))
    export_heads(folders, tmp_path / "model.onnx")
    assert _inputs(tmp_path / "model.onnx") == ["input_ids", "attention_mask"]
    assert heads_parity(folders, tmp_path / "model.onnx") < 1e-5
