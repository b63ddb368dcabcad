"""ONNX files against the transformers model, over batch sizes, lengths and padding."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from distill.deploy.export import reload
from distill.deploy.export.onnx import check_reloads, export_heads, export_onnx, heads_parity, onnx_parity
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
        tiny.change(folder / "tokenizer_config.json", model_input_names=["input_ids", "attention_mask"])
    export_heads(folders, tmp_path / "model.onnx")
    assert _inputs(tmp_path / "model.onnx") == ["input_ids", "attention_mask"]
    assert heads_parity(folders, tmp_path / "model.onnx") < 1e-5


ROWS = [
    (tiny.SENTENCES[0],),
    (tiny.SENTENCES[1], tiny.SENTENCES[2]),
    ("the [SEP] boat [SEP] of the village",),
    (tiny.SENTENCES[3],),
]
"""Texts and a pair, with one to three end tokens."""


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The models of which graphs would be made."""
    models: list[Any] = []
    monkeypatch.setattr("distill.deploy.export.onnx._write", lambda model, *others: models.append(model))
    return models


def alone(folder: Path) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Logits of transformers for each of `ROWS` by itself, and all of them as one batch, padded by the tokenizer's
    token."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    rows = [tokenizer(*row, return_tensors="pt") for row in ROWS]
    with torch.no_grad():
        logits = torch.cat([model(**row).logits for row in rows])
    ids = [row["input_ids"][0] for row in rows]
    mask = pad_sequence([torch.ones_like(row) for row in ids], batch_first=True)
    padded = pad_sequence(ids, batch_first=True, padding_value=tokenizer.pad_token_id)
    return logits, {"input_ids": padded, "attention_mask": mask}


def test_a_graph_reads_the_last_end_token_of_each_row(traced: list[Any], tmp_path: Path) -> None:
    """transformers refuses such a batch, but no graph has its check: a row would get the state of another row."""
    folder = tiny.save(tmp_path / "m", "bart", "SequenceClassification", std=0.4, num_labels=3)
    expected, batch = alone(folder)
    assert batch["input_ids"].eq(2).sum(1).tolist() == [1, 2, 3, 1]
    export_onnx(folder, tmp_path / "model.onnx")
    with torch.no_grad():
        (found,) = traced[0](**batch)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    check_reloads(AutoModelForSequenceClassification.from_pretrained(folder).eval(), folder)


def test_extreme_inputs_have_the_end_token_that_a_model_reads(tmp_path: Path) -> None:
    folder = tiny.save(tmp_path / "m", "bart", "SequenceClassification", std=0.4, num_labels=3)
    rows = reload.logits("torch", str(folder), tiny.tokenizer(), [["boat"], ["a small boat"]], 16, True)
    assert [len(row) for row in rows] == [3] * 6  # two texts, one token, a long text, and both as a batch


@pytest.mark.slow
def test_a_file_that_reads_end_tokens_is_right_for_texts_and_pairs_in_one_batch(tmp_path: Path) -> None:
    folder = tiny.save(tmp_path / "m", "bart", "SequenceClassification", std=0.2, num_labels=3, encoder_layers=1)
    expected, batch = alone(folder)
    export_onnx(folder, tmp_path / "model.onnx")
    run = onnx_runner("x", tmp_path / "model.onnx", scheme="fp32", threads=1).run
    found = run({name: values.numpy() for name, values in batch.items()})
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-4)
    assert onnx_parity(folder, tmp_path / "model.onnx") < 1e-4


def test_a_graph_finds_the_last_token_by_that_with_which_the_tokenizer_pads(traced: list[Any], tmp_path: Path) -> None:
    """A decoder's config may name another one. The batches that a user makes have the tokenizer's."""
    folder = tiny.save(tmp_path / "m", "qwen3", "SequenceClassification", std=0.4, num_labels=3)
    tiny.change(folder / "config.json", pad_token_id=0)
    expected, batch = alone(folder)
    assert batch["input_ids"][0, -1] == tiny.PADDING
    export_onnx(folder, tmp_path / "model.onnx")
    with torch.no_grad():
        found = traced[0](**batch).logits
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
