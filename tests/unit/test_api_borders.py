"""Values that a call must not take in silence, in `distill`'s functions on plain models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, TrainingArguments

import distill
from distill.compression.quantization.quantize import MAKE
from distill.deploy import serve
from distill.errors import ConfigError, DataError
from distill.inference import artifact
from distill.inference.artifact import in_eval_mode
from tests import tiny

Tiny = Callable[..., Any]
PROBLEMS = {"regression": {"num_labels": 1}, "flags": {"problem_type": "multi_label_classification"}}


@pytest.fixture
def model(tiny_model: Tiny) -> Any:
    return tiny_model("bert", "SequenceClassification")


def loss_of(student: Any, batch: dict[str, Tensor], **labels: Tensor) -> float:
    inputs = {name: values for name, values in batch.items() if name != "labels"}
    return distill.DistillationLoss(student, None, [distill.terms.Supervised()])(inputs | labels)[0].item()


def test_soft_labels_of_several_are_refused_and_whole_ones_are_those_of_transformers(
    tiny_model: Tiny, tiny_batch: dict[str, Tensor]
) -> None:
    student = tiny_model("bert", "SequenceClassification", **PROBLEMS["flags"])
    labels = torch.tensor([[1.0, 0, 1], [0, 0, 1]])
    expected = student(**{**tiny_batch, "labels": labels}).loss.item()
    assert loss_of(student, tiny_batch, labels=labels) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(DataError, match="got numbers with a fraction; must be 0 or 1 for each label"):
        loss_of(student, tiny_batch, labels=0.9 * labels)


@pytest.mark.parametrize("missing", [-100.0, float("nan")])
def test_a_number_without_a_label_does_not_count(
    missing: float, tiny_model: Tiny, tiny_batch: dict[str, Tensor]
) -> None:
    student = tiny_model("bert", "SequenceClassification", **PROBLEMS["regression"])
    first = {name: values[1:] for name, values in tiny_batch.items()}
    alone = loss_of(student, first, labels=torch.tensor([2.0]))
    assert loss_of(student, tiny_batch, labels=torch.tensor([missing, 2.0])) == pytest.approx(alone, rel=1e-5)


def test_a_label_by_its_name_in_data_sets_counts(model: Any, tiny_batch: dict[str, Tensor]) -> None:
    labels = tiny_batch["labels"]
    assert loss_of(model, tiny_batch, label=labels) == loss_of(model, tiny_batch, labels=labels) > 0


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"layers": 2, "ffn": -5}, "ffn: got -5; must be from 1 to"),
        ({"ffn": 10_000}, "ffn: got 10000; must be from 1 to"),
        ({"ffn": 0}, "ffn: got 0; must be from 1 to"),
        ({"hidden": 0}, "hidden: got 0; must be a multiple of"),
        ({"layers": []}, "layers: got none; must be one layer or more"),
        ({"size_mib": 0.2, "dimensions": ["depth"]}, "dimensions: got depth; must be a list of layers, hidden, ffn"),
        ({"size_mib": 0.2, "dimensions": "layers"}, "dimensions: got layers; must be a list of"),
    ],
)
def test_sizes_that_a_model_cannot_have_are_refused(
    sizes: dict[str, Any], message: str, model: Any, tiny_batch: dict[str, Tensor]
) -> None:
    with pytest.raises(ConfigError, match=message):
        distill.prune(model, [tiny_batch], **sizes)
    if "ffn" in sizes and sizes["ffn"] < 1:
        with pytest.raises(ConfigError, match="ffn: got"):
            distill.student(model, layers=1, ffn=sizes["ffn"])


def test_numbers_of_numpy_are_numbers(model: Any) -> None:
    assert distill.student(model, layers=np.int64(1)).config.num_hidden_layers == 1  # type: ignore[arg-type]


def test_names_of_modules_that_stay_in_float_are_names(model: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"keep: got 'bert.encoder'; must be a list"):
        distill.quantize(model, "onnxruntime", out=tmp_path / "a", keep="bert.encoder")
    with pytest.raises(ConfigError, match=r"keep: got encoder.layer.0; must be the name of a module of the model"):
        distill.quantize(model, "onnxruntime", out=tmp_path / "b", keep=["encoder.layer.0"])
    assert not list(tmp_path.iterdir())


def test_each_part_of_a_model_keeps_its_mode(model: Any, tiny_batch: dict[str, Tensor]) -> None:
    model.train()
    model.bert.eval()
    before = {name: part.training for name, part in model.named_modules()}
    with in_eval_mode([model]):
        assert not any(part.training for part in model.modules())
    assert {name: part.training for name, part in model.named_modules()} == before
    distill.prune(model, [tiny_batch], layers=1)
    assert {name: part.training for name, part in model.named_modules()} == before


def test_a_teacher_runs_in_eval_mode_whatever_was_done_to_it(tiny_model: Tiny, tiny_batch: dict[str, Tensor]) -> None:
    student, teacher = (tiny_model("bert", "SequenceClassification", seed=seed) for seed in (0, 1))
    loss_fn = distill.DistillationLoss(student.eval(), teacher, [distill.terms.SoftTargets()])
    before = loss_fn(tiny_batch)[0].item()
    teacher.train()
    assert loss_fn(tiny_batch)[0].item() == before


def test_settings_of_the_trainer_that_the_loss_does_not_have_are_refused(model: Any, tmp_path: Path) -> None:
    arguments = TrainingArguments(str(tmp_path), label_smoothing_factor=0.5, use_cpu=True, report_to="none")
    with pytest.raises(ConfigError, match=r"label_smoothing_factor: got 0.5; must be left out"):
        distill.DistillationTrainer(model, None, [distill.terms.Supervised()], args=arguments)


@pytest.mark.parametrize("size", [-1, 0, 1.5, "8"])
def test_a_batch_has_a_text_or_more(size: Any, folder_of_three: Path) -> None:
    with pytest.raises(ConfigError, match="batch_size: got"):
        serve.load(folder_of_three).predict(["a"], batch_size=size)


@pytest.fixture
def folder_of_three(classifier: Any) -> Path:
    return Path(classifier("bert"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"texts": "hello there"}, "texts: got 'hello there'; must be a list of texts"),
        ({"repeats": 0}, "repeats: got 0; must be 1 or more"),
        ({"threads": 0}, "threads: got 0; must be 1 or more"),
    ],
)
def test_what_cannot_be_timed_is_refused(wrong: dict[str, Any], message: str, model: Any) -> None:
    with pytest.raises(ConfigError, match=message):
        distill.benchmark({"a": model}, **wrong)


@pytest.mark.parametrize("device", ["gpu", "cuda:99"])
def test_a_device_that_the_machine_does_not_have_is_refused(device: str, model: Any, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    rows = [{"input_ids": [7, 8, 9], "labels": 1}]
    for act in (
        lambda: distill.evaluate({"a": tmp_path}, rows, device=device),
        lambda: distill.benchmark({"a": tmp_path}, shapes=[(1, 8)], device=device, repeats=1),
        lambda: distill.load(tmp_path, device=device),
    ):
        with pytest.raises(ConfigError, match=rf"^device: got {device}; must be a device that this machine has"):
            act()


def test_what_cannot_be_timed_here_is_refused_before_anything_is_measured(
    model: Any, tiny_batch: dict[str, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact, "find_spec", lambda name: None if name == "nncf" else name)
    measured: list[str] = []
    absent = "^scheme: got openvino; must be a scheme whose packages are installed, and nncf is not; run pip install "
    for wrong, message in (
        ({"threads": -1}, "^threads: got -1; must be 1 or more"),
        ({"scheme": "int3"}, "^scheme: got int3; must be one of"),
        ({"scheme": "openvino"}, absent),
    ):
        with pytest.raises(ConfigError, match=message):
            distill.prune(model, [tiny_batch] * 4, speedup=1.1, log=measured.append, **wrong)
    with pytest.raises(ConfigError, match=absent):
        distill.quantize(model, "openvino", out=tmp_path / "a", calibration=[tiny_batch])
    with pytest.raises(ConfigError, match=r"^threads: got -1; must be 1 or more"):
        distill.evaluate({"a": model}, [tiny_batch], threads=-1)
    assert not measured


def test_a_single_round_has_no_interval(model: Any) -> None:
    rows = distill.benchmark({"a": model, "b": model}, shapes=[(1, 8)], repeats=1)
    assert [row["ci95"] for row in rows] == [None, None]
    str(rows)


def test_models_with_other_ends_of_texts_are_timed_together() -> None:
    """Qwen names several end tokens, and BART classifies at its own."""
    models = {"qwen": tiny.model("qwen3", "SequenceClassification", eos_token_id=[2, 3])}
    models["bart"] = tiny.model("bart", "SequenceClassification")
    rows = distill.benchmark(models, shapes=[(3, 8)], repeats=1)
    assert all(row["ms"] > 0 for row in rows)


@pytest.mark.parametrize("name", tiny.TEACHERS)
def test_models_that_can_only_be_teachers_are_refused(name: str) -> None:
    model = tiny.model(name, "TokenClassification" if name == "openai_privacy_filter" else "SequenceClassification")
    for key, act in (("teacher", distill.student), ("model", lambda given: distill.prune(given, [], layers=1))):
        with pytest.raises(ConfigError, match=rf"^{key}: got a model of type {name}; must be one of bert, .*; choose "):
            act(model)


@pytest.mark.parametrize("name", ["bart", "qwen2"])
def test_they_have_students_of_another_family(name: str) -> None:
    model = tiny.model(name, "SequenceClassification", num_labels=3)
    made = distill.student(model, layers=1, ffn=24, family="bert", init="random")
    assert (made.config.model_type, made.config.num_labels, made.config.intermediate_size) == ("bert", 3, 24)
    if name == "bart":
        with pytest.raises(ConfigError, match=r"^ffn: got none; must be a number for a teacher of type bart"):
            distill.student(model, layers=1, family="bert", init="random")


def test_a_bart_of_two_labels_is_quantized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers leaves two default names out of a config, and gives a BART without names three labels."""
    monkeypatch.setitem(MAKE, "bitsandbytes", lambda source, out, keep, rows: None)
    model = tiny.model("bart", "SequenceClassification", num_labels=2)
    distill.quantize(model, "bitsandbytes", out=tmp_path / "q")
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "q")
    assert again.config.id2label == model.config.id2label
