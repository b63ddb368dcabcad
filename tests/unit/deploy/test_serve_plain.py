"""Folders that distill did not write: what they state is what transformers makes of it, and what is guessed is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from distill.deploy import serve
from distill.errors import DataError, UserError
from tests import tiny

TEXT = "she painted every door on the street"


def classifier(folder: Path, labels: list[str] | None = None, family: str = "bert", **settings: Any) -> Path:
    names = (
        {}
        if labels is None
        else {"id2label": dict(enumerate(labels)), "label2id": {n: i for i, n in enumerate(labels)}}
    )
    tiny.save(folder, family, "SequenceClassification", std=0.4, **names, **settings)
    return folder


@pytest.mark.parametrize("labels", [["toxic"], ["LABEL_0"], ["a", "b", "c"]])
def test_probabilities_of_labels_are_those_of_the_pipeline(labels: list[str], tmp_path: Path) -> None:
    from transformers import pipeline

    folder = classifier(tmp_path / "model", labels, problem_type="multi_label_classification")
    oracle = pipeline("text-classification", str(folder), top_k=None)([TEXT])[0]
    (found,) = serve.load(folder).predict([TEXT])
    names = ["0"] if labels == ["LABEL_0"] else labels
    expected = dict(
        zip(names, [{each["label"]: each["score"] for each in oracle}[name] for name in labels], strict=True)
    )
    assert found["scores"] == pytest.approx(expected, abs=1e-5)
    assert found["labels"] == [name for name in names if expected[name] > 0.5]


@pytest.mark.parametrize("outputs", [1, 2, 5])
def test_a_head_whose_config_does_not_name_its_outputs_has_those_of_its_weights(outputs: int, tmp_path: Path) -> None:
    """Without their number, transformers takes two."""
    from transformers import AutoModelForSequenceClassification

    folder = classifier(tmp_path / "model", num_labels=outputs)
    tiny.change(folder / "config.json", id2label=..., label2id=..., problem_type="multi_label_classification")
    model = serve.load(folder)
    assert model.labels == tuple(map(str, range(outputs)))
    oracle = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=outputs)
    with torch.no_grad():
        logits = oracle.eval()(**model.tokenizer([TEXT], return_tensors="pt")).logits
    assert model.outputs([TEXT]) == pytest.approx(logits.numpy(), abs=1e-5)


def test_a_number_is_that_of_the_pipeline_and_one_without_a_problem_is_noted(tmp_path: Path) -> None:
    from transformers import pipeline

    folder, said = classifier(tmp_path / "model", ["stars"], problem_type="regression"), list[str]()
    (oracle,) = pipeline("text-classification", str(folder))([TEXT])
    assert serve.load(folder, say=said.append).predict([TEXT]) == [{"score": pytest.approx(oracle["score"], abs=1e-5)}]
    assert said == []
    tiny.change(folder / "config.json", problem_type=None)
    with pytest.warns(UserWarning, match="one output and no problem_type; it is used as a number"):
        serve.load(folder)


@pytest.mark.parametrize(
    ("labels", "problem", "message"),
    [
        (["cohesion", "syntax", "grammar"], "regression", "got 3 outputs of a regression"),
        (["toxic"], "single_label_classification", "single_label_classification"),
    ],
)
def test_problems_that_outputs_cannot_have_are_refused(
    labels: list[str], problem: str, message: str, tmp_path: Path
) -> None:
    folder = classifier(tmp_path / "model", labels)
    tiny.change(folder / "config.json", problem_type=problem)
    with pytest.raises(DataError, match=message):
        serve.load(folder)


@pytest.mark.parametrize(("family", "most"), [("deberta-v2", 32), ("xlnet", 512)])
def test_texts_are_cut_where_neither_tokenizer_nor_model_states_a_length(
    family: str, most: int, tmp_path: Path
) -> None:
    settings = {"position_biased_input": False} if family == "deberta-v2" else {}
    folder, said = classifier(tmp_path / "model", family=family, **settings), list[str]()
    tiny.change(folder / "tokenizer_config.json", model_max_length=int(1e30))
    assert serve.load(folder, say=said.append).max_length == most
    (line,) = (line for line in said if "maximum length" in line)
    assert f"texts are cut after {most} tokens" in line
    said.clear()
    assert serve.load(folder, say=said.append, max_length=600).max_length == 600
    assert not [line for line in said if "maximum length" in line]
    tiny.change(folder / "tokenizer_config.json", model_max_length=700)
    assert serve.load(folder, say=said.append).max_length == 700
    assert not [line for line in said if "maximum length" in line]


def test_a_model_of_bitsandbytes_is_loaded_by_it(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    from transformers import AutoModelForSequenceClassification, BitsAndBytesConfig

    folder = classifier(tmp_path / "float", ["a", "b", "c"], hidden_size=64, intermediate_size=64)
    settings = BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=["classifier", "pooler"])
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, quantization_config=settings, device_map={"": "cpu"}
    )
    quantized = shutil.copytree(folder, tmp_path / "int8", ignore=shutil.ignore_patterns("model*", "config.json"))
    model.save_pretrained(quantized)
    loaded = serve.load(quantized)
    assert (loaded.backend, loaded.scheme) == ("bitsandbytes", "int8")
    (found,), (whole,) = loaded.predict([TEXT]), serve.load(folder).predict([TEXT])
    assert found["scores"] == pytest.approx(whole["scores"], abs=0.1)


def test_other_quantizers_are_refused(tmp_path: Path) -> None:
    folder = classifier(tmp_path / "model", ["a", "b", "c"])
    tiny.change(folder / "config.json", quantization_config={"quant_method": "gptq", "bits": 4})
    with pytest.raises(UserError, match="quantized by gptq in another scheme than int8 or nf4; must be float"):
        serve.load(folder)


def test_tokenizers_without_a_fast_version_are_refused(tmp_path: Path) -> None:
    folder = classifier(tmp_path / "model", ["a", "b", "c"], family="roberta")
    for file in folder.glob("tokenizer*"):
        file.unlink()
    (folder / "vocab.txt").write_text("a 1\nb 2\n")
    (folder / "bpe.codes").write_text("#version: 0.2\na b 3\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PhobertTokenizer"}))
    with pytest.raises(DataError, match="got a tokenizer of class PhobertTokenizer, which has no fast version"):
        serve.load(folder)
