"""Whole runs of token classification, from a file of words and tags or of texts and spans to predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distill
from distill.cli.compare.comparison import compare
from distill.data.task_types.words import words_of
from tests import tiny
from tests.small import FLOAT, SMALL, given

COUNT = 64
LABELS = ("O", "B-ANIMAL", "I-ANIMAL", "B-PLACE", "I-PLACE")
TYPES = {"boat": "PLACE", "village": "PLACE", "street": "PLACE", "goats": "ANIMAL", "fishermen": "ANIMAL"}


def words(number: int) -> dict[str, Any]:
    tokens = [*tiny.SENTENCES[number % 8].split(), f"{number}"]
    tags = [f"B-{TYPES[token]}" if token in TYPES else "O" for token in tokens]
    return {"tokens": tokens, "ner_tags": None if number == 5 else tags}


def spans(number: int) -> dict[str, Any]:
    text = f"{tiny.SENTENCES[number % 8]}, {number}."
    marked = [
        {"start": start, "end": end, "label": TYPES[text[start:end]]}
        for start, end in words_of(text)
        if text[start:end] in TYPES
    ]
    return {"text": text, "spans": marked}


@pytest.mark.slow
@pytest.mark.parametrize("form", [words, spans])
def test_a_file_becomes_exported_models_that_predict(form: Any, run: Any, predicted: Any, tmp_path: Path) -> None:
    file = tmp_path / "places.jsonl"
    file.write_text("".join(json.dumps(form(number)) + "\n" for number in range(COUNT)))
    more = ["stages.quantize.max_recall_drop=100", *(() if form is words else FLOAT), f"teacher.name={given(tmp_path)}"]
    results = run(tmp_path, "prune", *SMALL, *more, f"tasks.train={file}", onnx=form is words)
    folder = tmp_path / "out" / "export" / "places"
    settings = json.loads((folder / "config.json").read_text())
    assert settings["architectures"] == ["BertForTokenClassification"]
    assert tuple(settings["id2label"].values()) == LABELS
    assert "pipeline_tag: token-classification" in (folder / "README.md").read_text()
    scores = [model["scores"]["places"] for model in results["models"] if model["scores"].get("places")]
    assert form is not words or len(scores) >= 4  # teacher and student, each in float32 and int8
    scored = {model["role"] for model in results["models"] if model["scores"].get("places")}
    assert scored == {"teacher", "student"}
    assert all(score.keys() == {"span_f1"} for score in scores)
    recalls = [model["recall"]["places"] for model in results["models"] if model["scores"].get("places")]
    assert all(recall.keys() <= {"ANIMAL", "PLACE"} for recall in recalls)
    spans_by_type = [model["entities"]["places"] for model in results["models"] if model["scores"].get("places")]
    for of_model, recall in zip(spans_by_type, recalls, strict=True):
        assert {name: row["recall"] for name, row in of_model.items() if row["true"]} == pytest.approx(recall)
    (train,) = (row for row in results["coverage"] if row["split"] == "train")
    assert train["spans"] is True
    assert train["labels"].keys() == {"ANIMAL", "PLACE"}
    model = distill.load(folder)
    assert model.labels == LABELS
    texts = [spans(number)["text"] for number in range(8)]
    for answer, text in zip(model.predict(texts), texts, strict=True):
        for span in answer["spans"]:
            assert text[span["start"] : span["end"]] == span["text"]
            assert span["label"] in ("ANIMAL", "PLACE")
            assert 0 < span["score"] <= 1
    comparison = compare(folder, folder, str(file), backends=("torch", "onnxruntime" if form is words else "torch"))
    assert comparison["labelled_rows"] == COUNT - (form is words)  # one text has no tags
    assert comparison["scores"]["span_f1"]["difference"] == pytest.approx(0)
    divided = [words(number)["tokens"] for number in range(8)]
    assert model.outputs(divided).shape == (sum(map(len, divided)), len(LABELS))
    np.testing.assert_allclose(model.outputs(divided), model.outputs([" ".join(part) for part in divided]), atol=1e-3)
    assert len(model.predict(divided)) == 8
    lines = predicted(folder, file)
    columns = [{key: row.get(key) for key in ("text", "tokens") if key in row} for row in map(form, range(COUNT))]
    assert [{key: line[key] for key in row} for line, row in zip(lines, columns, strict=True)] == columns
    assert all(isinstance(line["predicted_spans" if "spans" in form(0) else "spans"], list) for line in lines)
