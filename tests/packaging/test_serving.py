"""The wheel and the packages of the extra `serve`, with nothing else in reach, answer as torch and transformers do."""

from __future__ import annotations

import importlib.metadata
import json
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distill
from distill.data.task_types import TASK_TYPES
from distill.deploy.export import onnx, record, tokenizer

ROOT = Path(__file__).resolve().parents[2]
TINY = runpy.run_path(str(ROOT / "tests" / "tiny.py"))
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
ARTIFACTS = (record.Entry("torch", "fp32", "."), record.Entry("onnxruntime", "fp32", "model.onnx", 1.0))
TEXTS = ["the small boat crossed the harbour", "[SEP] snow begins \U0001f600", "storm " * 60, "Z\u00fcrich"]
ANSWERS: dict[str, Any] = {"question": "who repaired the clock", "context": "he repaired the clock with a spoon " * 9}


def named(*labels: str) -> dict[str, Any]:
    numbers = {label: number for number, label in enumerate(labels)}
    return {"num_labels": len(labels), "id2label": dict(enumerate(labels)), "label2id": numbers}


KINDS: dict[str, tuple[str, dict[str, Any], list[Any]]] = {
    "classification": ("SequenceClassification", named("boat", "storm"), TEXTS),
    "multi_label": (
        "SequenceClassification", named("boat", "storm") | {"problem_type": "multi_label_classification"}, TEXTS,
    ),
    "regression": ("SequenceClassification", {"num_labels": 1}, TEXTS),
    "token_classification": ("TokenClassification", named("O", "B-PER", "I-PER"), TEXTS),
    "multiple_choice": ("MultipleChoice", {}, [["the clock", ["a spoon", "a piece of string"]], ["snow", TEXTS]]),
    "question_answering": ("QuestionAnswering", {}, [[*ANSWERS.values()], ["what", "two goats"]]),
}  # fmt: skip
"""Kind of task -> head, settings of its model, and rows for it."""


def exported(folder: Path, kind: str) -> Path:
    """An exported folder with a random model, of which the ONNX file is the fastest artifact."""
    head, settings, _ = KINDS[kind]
    TINY["save"](folder, "bert", head, length=45, std=0.4, num_hidden_layers=1, **settings)
    onnx.export_onnx(folder, folder / "model.onnx")
    labels = tuple(settings.get("id2label", {}).values())
    columns = {"question_answering": ("question", "context")}.get(kind, ("text",))
    tokens = tokenizer.proved(folder, [TEXTS[:1]], 40)
    assert tokens is not None
    record.write(folder, record.Record("t", TASK_TYPES[kind], labels, columns, 40, ARTIFACTS, tokens=tokens))
    return folder


def embedder(folder: Path) -> Path:
    """An exported embedder, in the layout of sentence-transformers."""
    from distill.models.families.vectors import Vectors, write

    TINY["save"](folder, "bert", "", length=45, std=0.4, num_hidden_layers=1)
    write(folder, Vectors(normalized=True, prompts={"query": "storm "}, default_prompt="query"), 16, {})
    onnx.export_onnx(folder, folder / "model.onnx")
    tokens = tokenizer.proved(folder, [], 40)
    record.write(folder, record.Record("t", TASK_TYPES["embedding"], (), ("text",), 40, ARTIFACTS, tokens=tokens))
    return folder


def heads(folder: Path) -> Path:
    """An exported folder with two heads on one encoder."""
    first = exported(folder / "first", "classification")
    shutil.copytree(first, folder / "second")
    onnx.export_heads({name: folder / name for name in ("first", "second")}, folder / "model.onnx")
    record.write(folder, record.Heads(("first", "second"), ARTIFACTS))
    return folder


def serving_packages() -> set[str]:
    """The distributions of the extra `serve`, as it is declared."""
    return {re.split(r"[<>=]", line)[0] for line in EXTRAS["serve"]}


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment, in which the wheel and the packages of `serve` alone can be imported."""
    root = tmp_path_factory.mktemp("environment")
    venv.create(root / "venv", with_pip=False, symlinks=True)
    (site,) = (root / "venv").rglob("site-packages")
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", site, wheel]
    subprocess.run(install, check=True, capture_output=True)
    for name in serving_packages():
        for top in {file.parts[0] for file in importlib.metadata.files(name) or [] if file.parts[0] != ".."}:
            source = Path(str(importlib.metadata.distribution(name).locate_file(top)))
            if not (site / top).exists() and top != "__pycache__":
                (site / top).symlink_to(source)
    return root / "venv" / "bin" / "python"


def alike(one: Any, other: Any) -> bool:
    """Whether two answers are the same up to rounding."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(alike, one, other))
    return bool(np.isclose(one, other, atol=1e-4)) if isinstance(one, float) else bool(one == other)


@pytest.mark.slow
def test_the_wheel_serves_every_kind_without_torch(python: Path, tmp_path: Path) -> None:
    rows: dict[str, Any] = {str(exported(tmp_path / kind, kind)): given for kind, (_, _, given) in KINDS.items()}
    rows |= {str(embedder(tmp_path / "embedding")): TEXTS, str(heads(tmp_path / "heads")): TEXTS}
    done = subprocess.run(
        [python, "-I", ROOT / "tests" / "packaging" / "serving.py"],
        input=json.dumps(rows), capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert Path(found["distill"]).is_relative_to(python.parents[1])
    for folder, given in rows.items():
        whole = distill.load(folder, backend="torch", threads=1)
        expected = whole.predict([tuple(row) if isinstance(row, list) else row for row in given])
        assert alike(found["answers"][folder], json.loads(json.dumps(expected))), folder
    ((folder, typed),) = found["typed"].items()
    both = zip(rows[folder], found["answers"][folder], strict=True)
    assert alike(typed, [{"text": text, **answer} for text, answer in both])
    assert "distill.run: got no package " in found["refused"]
