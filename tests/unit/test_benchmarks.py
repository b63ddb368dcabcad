"""Both kinds of step in benchmarks/step.py compute the same terms; small sizes of other benchmarks are measured."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from rich.console import Console
from transformers import BertConfig, BertForMaskedLM, BertModel

from benchmarks import bert_base, label_scale, onnx_export, step
from benchmarks.tables.speed import step_table
from distill.config import Train
from distill.runtime.machine import Machine
from tests.forked import PYTHON

SHAPE = (3, 16)


pytestmark = pytest.mark.usefixtures("no_accelerator_remains")


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
