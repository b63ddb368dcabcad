"""Tiny models of several families and kinds, as folders that transformers loads."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from distill.data.task_types import TASK_TYPES
from distill.deploy.export.record import Entry, Record, write
from distill.runtime.storage import atomic
from tests import tiny

_SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "initializer_range": 0.2}


def _names(*labels: str) -> dict[str, Any]:
    return {"id2label": dict(enumerate(labels)), "label2id": {label: number for number, label in enumerate(labels)}}


MODELS: dict[str, dict[str, Any]] = {
    "bert": {"num_labels": 3} | _names("boat", "baker", "storm"),
    "roberta": {"num_labels": 4},
    "distilbert": {"num_labels": 1, "problem_type": "regression"},
    "multi_label": {"num_labels": 3, "problem_type": "multi_label_classification"} | _names("a", "b", "c"),
}


def recorded(folder: Path, *entries: Entry, **more: Any) -> Path:
    """The folder with a record of the model `bert`, whose config names the same labels."""
    task: dict[str, Any] = {"kind": TASK_TYPES["classification"], "labels": ("boat", "baker", "storm")}
    task |= {"columns": ("body",)} | more
    artifacts = entries or (Entry("torch", "fp32", "."),)
    if len(task["labels"]) == len(atomic.read_json(folder / "config.json").get("id2label", ())):
        tiny.change(folder / "config.json", id2label=dict(enumerate(task["labels"])))
    write(folder, Record("tickets", max_length=40, artifacts=artifacts, **task))
    return folder


@pytest.fixture(scope="package")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Name -> folder of a random classifier of texts of at most 45 tokens."""
    root = tmp_path_factory.mktemp("models")
    families = {name: "bert" if name == "multi_label" else name for name in MODELS}
    return {
        name: tiny.save(root / name, families[name], "SequenceClassification", length=45, **_SIZES, **more)
        for name, more in MODELS.items()
    }


@pytest.fixture
def sentences() -> list[str]:
    """Texts of different lengths: an empty one, and one that is longer than the models' maximum, among them."""
    return [*tiny.SENTENCES, "", "boat", " ".join(tiny.SENTENCES)]


@pytest.fixture
def copy(folders: dict[str, Path], tmp_path: Path) -> Path:
    """The classifier "bert", to be changed."""
    return Path(shutil.copytree(folders["bert"], tmp_path / "copy"))
