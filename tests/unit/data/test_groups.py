"""Rows of several sequences: batches, outputs and lengths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from distill.data.collate import task_batch
from distill.data.encode import Encoded, encode_choices
from distill.data.task_types import ABSENT
from distill.deploy.export.onnx import TOLERANCE, export_onnx, onnx_parity
from distill.deploy.export.proof import plain_logits
from distill.inference.predict import predict
from distill.inference.runners import onnx_runner, torch_run
from distill.models import families
from distill.models.hooks import outputs_of
from tests import tiny

# Three rows with two, one and three sequences.
GROUPS = np.array([0, 2, 3, 6])


def grouped() -> Encoded:
    lengths = [5, 3, 9, 4, 8, 6]
    ids = np.random.default_rng(0).integers(5, 60, sum(lengths)).astype(np.int32)
    offsets = np.cumsum([0, *lengths])
    return Encoded(ids, offsets, np.zeros(len(ids), np.int8), np.array([1, 0, 2]), groups=GROUPS)


def test_lengths_and_sequences() -> None:
    encoded = grouped()
    assert (len(encoded), encoded.most, encoded.lengths.tolist()) == (3, 3, [8, 9, 18])
    assert len(encoded.sequences) == 6
    assert encoded.sequences.labels is None


def test_a_batch_has_all_sequences_of_its_rows() -> None:
    encoded = grouped()
    batch, rows = task_batch(encoded, [2, 0], pad_id=0)
    assert rows.tolist() == [2, 0]
    assert batch["groups"].tolist() == [[0, 1, 2], [3, 4, -1]]
    assert batch["attention_mask"].sum(axis=1).tolist() == [4, 8, 6, 5, 3]


def test_training_and_prediction_have_the_same_outputs() -> None:
    model, encoded = tiny.model("bert", "MultipleChoice"), grouped()
    run = torch_run(model, scheme="fp32", device="cpu", threads=1)
    predicted = predict(run, encoded, pad_id=0)
    assert predicted.shape == (3, 3)
    assert predicted[[0, 1, 1], [2, 1, 2]].tolist() == [ABSENT] * 3
    batch, _ = task_batch(encoded, [0, 1, 2], pad_id=0)
    with torch.no_grad():
        trained = outputs_of(model, {name: torch.from_numpy(values) for name, values in batch.items()})
    np.testing.assert_allclose(trained, predicted, atol=1e-5)


def test_logits_of_choices_are_those_of_transformers() -> None:
    model, tokenizer = tiny.model("bert", "MultipleChoice", vocab_size=120), tiny.tokenizer()
    rows = [(text, tiny.SENTENCES[number : number + 4]) for number, text in enumerate(tiny.SENTENCES[:4])]
    encoded = encode_choices(rows, tokenizer, 32)
    run = torch_run(model, scheme="fp32", device="cpu", threads=1)
    predicted = predict(run, encoded, pad_id=tokenizer.pad_token_id, rows=3)
    pairs = [(text, choice) for text, choices in rows for choice in choices]
    flat = tokenizer(*map(list, zip(*pairs, strict=True)), padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = model(**{name: values.unflatten(0, (4, 4)) for name, values in flat.items()}).logits
    np.testing.assert_allclose(predicted, expected, atol=1e-5)


def test_outputs_of_answers_are_those_of_transformers() -> None:
    model = tiny.model("bert", "QuestionAnswering")
    batch = {"input_ids": torch.arange(5, 17).reshape(2, 6), "attention_mask": torch.ones(2, 6, dtype=torch.long)}
    with torch.no_grad():
        outputs, expected = families.logits(model, batch), model(**batch)
    assert torch.equal(outputs[..., 0], expected.start_logits)
    assert torch.equal(outputs[..., 1], expected.end_logits)


@pytest.mark.slow
@pytest.mark.parametrize(("head", "outputs"), [("MultipleChoice", 1), ("QuestionAnswering", 2)])
def test_onnx_files_have_the_inputs_and_outputs_of_the_model(tmp_path: Path, head: str, outputs: int) -> None:
    folder = tiny.save(tmp_path / "model", "bert", head, num_hidden_layers=1)
    export_onnx(folder, tmp_path / "model.onnx")
    assert onnx_parity(folder, tmp_path / "model.onnx") <= TOLERANCE
    texts = [tiny.SENTENCES[:2]]
    batch = dict(tiny.tokenizer()(*texts[0], return_tensors="np"))
    run = onnx_runner("onnx", tmp_path / "model.onnx", scheme="fp32", threads=1).run
    expected = plain_logits(folder, texts, 32)
    np.testing.assert_allclose(run(batch).ravel(), expected.ravel(), atol=1e-5)
    assert run(batch).shape[-1] == outputs
