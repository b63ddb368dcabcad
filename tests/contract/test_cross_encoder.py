"""An exported reranker gives in sentence-transformers the scores of its teacher's activation."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from distill.config.schemes import SCHEMES
from distill.data.task import Task
from distill.data.task_types import TASK_TYPES
from distill.deploy.export import artifacts, quantized_folder
from distill.deploy.export.cross_encoder import SIGMOID, activation, configure
from distill.deploy.export.huggingface import export_folder
from distill.deploy.export.proof import plain_logits
from distill.models import families, teacher
from distill.models.families.head import stored_head
from tests import tiny

PAIRS = [[query, document] for query in tiny.SENTENCES[:2] for document in tiny.SENTENCES[2:]]
FUNCTIONS = {"Sigmoid": torch.nn.Sigmoid(), "Identity": torch.nn.Identity(), "Tanh": torch.nn.Tanh()}


def reranker(folder: Path, name: str = "bert", **settings: Any) -> Path:
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "initializer_range": 0.3}
    sizes |= {"length": 64, "num_labels": 1}
    saved: Path = tiny.save(folder, name, "SequenceClassification", **{**sizes, **settings})
    return saved


def elsewhere(folder: Path) -> Any:
    """What sentence-transformers loads from a folder."""
    from sentence_transformers import CrossEncoder

    return CrossEncoder(str(folder), device="cpu")


def check(folder: Path, source: Path, function: Any) -> None:
    logits = torch.from_numpy(plain_logits(source, PAIRS)).reshape(-1)
    model = elsewhere(folder)
    np.testing.assert_allclose(model.predict(PAIRS), function(logits).numpy(), atol=1e-5)
    (query, _), documents = PAIRS[0], [document for _, document in PAIRS[:6]]
    ranked = [entry["corpus_id"] for entry in model.rank(query, documents)]
    assert ranked == np.argsort(-logits[:6].numpy()).tolist()
    assert np.ptp(logits.numpy()) > 0.05


@pytest.mark.parametrize("name", ["Identity", "Tanh", "Sigmoid", None])
def test_the_activation_of_a_teacher_survives(name: str | None, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    function = FUNCTIONS[name or "Sigmoid"]
    given = CrossEncoder(str(reranker(tmp_path / "made")), device="cpu", activation_fn=name and function)
    given.save_pretrained(str(tmp_path / "teacher"))
    head = stored_head(tmp_path / "teacher")
    assert head is not None
    assert head.outputs == 1
    student, out = reranker(tmp_path / "student", seed=1), tmp_path / "out"
    export_folder(student, out, "", [(student, "bitsandbytes")])
    configure(out, activation([tmp_path / "teacher"]))
    check(out, student, function)
    check(out / "bitsandbytes", student, function)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in families.STUDENTS if name not in tiny.SAME])
def test_every_family(name: str, tmp_path: Path) -> None:
    source = reranker(tmp_path / "source", name)
    export_folder(source, tmp_path / "out", "")
    configure(tmp_path / "out", activation([source]))
    check(tmp_path / "out", source, torch.nn.Sigmoid())


IDENTITY = "torch.nn.modules.linear.Identity"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([{}], SIGMOID),
        ([{}, {"config.json": {"sentence_transformers": {"activation_fn": IDENTITY}}}], IDENTITY),
        ([{"config.json": {"sbert_ce_default_activation_function": IDENTITY}}, {"config.json": {}}], IDENTITY),
        ([{"config_sentence_transformers.json": {"activation_fn": IDENTITY}, "config.json": {"sentence_transformers":
            {"activation_fn": SIGMOID}}}], IDENTITY),
        ([{"config.json": {"sentence_transformers": {"activation_fn": "own.Code"}}}], SIGMOID),
        ([{"config.json": {"sentence_transformers": "torch.nn.Tanh"}}], SIGMOID),
        ([{"config.json": {"sentence_transformers": {"activation_fn": 3}}}], SIGMOID),
    ],
)  # fmt: skip
def test_where_the_activation_is_looked_up(files: list[dict[str, Any]], expected: str, tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(len(files))]
    for folder, contents in zip(folders, files, strict=True):
        folder.mkdir()
        for name, content in contents.items():
            (folder / name).write_text(json.dumps(content))
    assert activation(folders) == expected


def test_versions_before_4_find_the_same_activation(tmp_path: Path) -> None:
    """They read an older setting alone, and take a sigmoid without it."""
    folder = reranker(tmp_path / "model", sbert_ce_default_activation_function="torch.nn.modules.activation.Tanh")
    configure(folder, IDENTITY)
    assert json.loads((folder / "config.json").read_text())["sbert_ce_default_activation_function"] == IDENTITY
    check(folder, folder, torch.nn.Identity())


@pytest.mark.parametrize("kind", ["reranking", "regression", "classification"])
def test_a_pair_is_cut_at_the_length_of_the_training(kind: str, tmp_path: Path) -> None:
    """Where a cross-encoder reads it: else it would read whole pairs, and give other scores than the ones measured."""
    labels = ("a", "b", "c") if kind == "classification" else ()
    mark = {"activation_fn": IDENTITY, "version": "5.0.0"}
    folder = reranker(tmp_path / "model", num_labels=len(labels) or 1, sentence_transformers=mark)
    task = Task("pairs", TASK_TYPES[kind], ("query", "document"), labels, ())
    artifacts.configure(folder, task, [folder], 8)
    cut, whole = (plain_logits(folder, PAIRS, longest) for longest in (8, 64))
    assert np.abs(cut - whole).max() > 0.05
    np.testing.assert_allclose(elsewhere(folder).predict(PAIRS).reshape(cut.shape), cut, atol=1e-5)


def test_a_quantized_form_of_several_outputs_has_the_default_of_several(tmp_path: Path) -> None:
    """An activation of another package is not loaded, and sentence-transformers then changes several outputs in no
    way."""
    given = reranker(tmp_path / "given", num_labels=3, sentence_transformers={"activation_fn": "own.Code"})
    folder = Path(shutil.copytree(given, tmp_path / "copy"))
    model = AutoModelForSequenceClassification.from_pretrained(given)
    quantized_folder.write_record(folder, "copy", model, teacher.load_tokenizer(given), SCHEMES["onnxruntime"], given)
    np.testing.assert_allclose(elsewhere(folder).predict(PAIRS), elsewhere(given).predict(PAIRS), atol=1e-6)
