"""The service of docs/service.py, asked over its HTTP interface."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import distill
from distill.data.task_types import TASK_TYPES
from distill.deploy.export.record import Entry, Record, write

DOCS = Path(__file__).resolve().parents[2] / "docs"
TINY = runpy.run_path(str(Path(__file__).parents[1] / "tiny.py"))


def test_the_service_answers_as_the_model_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi")
    client = pytest.importorskip("fastapi.testclient").TestClient
    TINY["save"](tmp_path, "bert", "SequenceClassification", length=45, num_labels=2)
    kind, artifacts = TASK_TYPES["classification"], (Entry("torch", "fp32", "."),)
    write(tmp_path, Record("t", kind, ("calm", "storm"), ("text",), 40, artifacts))
    monkeypatch.setenv("FOLDER", str(tmp_path))
    asked = client(runpy.run_path(str(DOCS / "service.py"))["app"])
    texts = ["a small boat", "snow"]
    expected = distill.load(tmp_path, threads=1).predict(texts)
    answer = asked.post("/predict", json={"texts": texts})
    assert (answer.status_code, answer.json()) == (200, expected)
    assert asked.post("/predict", json={}).status_code == 422
