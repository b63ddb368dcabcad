"""What code outside of the package adds: a backend, a scheme, a loss, a kind of task and a family, without a change to
distill. The first three are in one file (tests/outside.py)."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForSequenceClassification

import distill
from distill.compression.quantization.quantize import FITS, MAKE
from distill.config import instantiate
from distill.config.backends import BACKENDS, Backend
from distill.config.schemes import SCHEMES, Form, Scheme
from distill.data.task_types import MISSING, TASK_TYPES
from distill.data.task_types.classification import CLASSIFICATION
from distill.data.task_types.multi_label import MULTI_LABEL
from distill.deploy.export import untrained
from distill.errors import ConfigError
from distill.inference import runners
from distill.models.families.records import FAMILIES, STUDENTS
from distill.models.families.roberta import ROBERTA
from distill.report import figure, page, table
from distill.report.variants import Run
from distill.report.web import data
from distill.runtime.storage import atomic, run_folder
from tests import outside, tiny
from tests.decoded import decoded

TESTS = Path(__file__).parents[1]
SIZES = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48, "num_hidden_layers": 2, "length": 60}
SCHEME = Scheme("outside", "outside", "int4", "outside", weights="4 bits by matrix", activations="float")


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend and the scheme of tests/outside.py, as its user adds them."""
    backend = Backend("outside", "outside", ("numpy",), "numpy", cpu_only=True, reloader="outside:reload")
    monkeypatch.setitem(BACKENDS, "outside", backend)
    monkeypatch.setitem(runners.RUNTIMES, "outside", outside.load)
    monkeypatch.setitem(SCHEMES, "outside", SCHEME)
    monkeypatch.setitem(MAKE, "outside", outside.quantize)
    monkeypatch.setenv("PYTHONPATH", str(TESTS))  # where the new process that verifies an export finds the file


def rounded(model: Any, names: list[str]) -> Any:
    """A model whose modules have weights that torch rounds to the same 15 values."""
    model = copy.deepcopy(model)
    for name in names:
        weight = model.get_submodule(name).weight
        scale = weight.abs().max().item() / outside.LEVELS
        limits = -outside.LEVELS, outside.LEVELS
        weight.data = torch.fake_quantize_per_tensor_affine(weight.data, scale, 0, *limits)
    return model


def test_a_scheme_and_its_backend_are_used_by_the_functions_on_models(
    added: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FITS, "outside", lambda module: module.in_features != SIZES["intermediate_size"])
    words = tiny.tokenizer(("input_ids", "attention_mask"))
    words.model_max_length = 60
    model = tiny.model("distilbert", "SequenceClassification", std=0.3, num_labels=2, vocab_size=len(words), **SIZES)
    linear = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    expected = [name for name in linear if "layer" in name and not name.endswith("lin2")]  # whose input is wide
    assert len(expected) == 10

    made = distill.quantize(model, "outside", out=tmp_path / "out", tokenizer=words)
    stored = np.load(made.path / "weights.npz")
    assert [name for name in linear if stored[f"{name}.weight"].dtype == np.int8] == expected

    texts = words(tiny.SENTENCES, padding=True, return_tensors="np")
    loaded = runners.load("a", made.path, backend=made.backend, scheme=made.scheme, device="cpu", threads=1)
    with torch.no_grad():
        given = {name: torch.from_numpy(value) for name, value in texts.items()}
        exact, logits = model(**given).logits.numpy(), rounded(model, expected)(**given).logits.numpy()
    np.testing.assert_allclose(loaded.run(dict(texts)), logits, atol=1e-5)
    assert np.abs(exact - logits).max() > 1e-2

    labels = logits.argmax(-1) ^ np.array([0, 1] * 4)
    rows = [dict(words(text)) | {"labels": int(label)} for text, label in zip(tiny.SENTENCES, labels, strict=True)]
    scores = distill.evaluate({"float": model, "small": made}, rows, metrics=["accuracy"])
    assert {row["model"]: row["scores"] for row in scores}["small"] == {"accuracy": 50.0}
    times = distill.benchmark({"float": model, "small": made}, shapes=[(2, 8)], repeats=2)
    assert [(row["model"], row["backend"], row["scheme"]) for row in times] == [
        ("float", "torch", "fp32"),
        ("small", "outside", "int4"),
    ]
    predicted = distill.load(tmp_path / "out", backend="outside").predict(tiny.SENTENCES)
    assert [each["label"] for each in predicted] == [f"LABEL_{label}" for label in logits.argmax(-1)]


def test_models_of_any_size_are_timed_in_the_scheme(added: None) -> None:
    form = Form("outside", "int4", "outside")
    config = tiny.config("distilbert", num_labels=3, **SIZES)
    (runner,) = untrained.runners(config, [form], device="cpu", threads=1).values()
    batch = {"input_ids": np.full((2, 7), 9), "attention_mask": np.ones((2, 7), np.int64)}
    assert (runner.backend, runner.run(batch).shape) == ("outside", (2, 3))


@pytest.mark.slow
def test_a_recipe_is_run_with_a_scheme_a_backend_and_a_loss_from_outside(
    added: None, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real_process: None
) -> None:
    """The student is quantized, scored, timed, exported, verified in a new process, and reported."""
    monkeypatch.syspath_prepend(TESTS)
    monkeypatch.setitem(instantiate.PLACES, "loss", (*instantiate.PLACES["loss"], "outside.absolute"))
    few = ["limit=smoke", "limit.steps=2", "tasks=docstrings", "tasks.names=[order]", "output=out"]
    few += ["limit.repeats=1", "limit.documents=60", "tasks.max_length=32", "stages.evaluate.shapes=[[1,16]]"]
    stages = ["pipeline=[finetune_teacher,finetune,quantize,evaluate,export]", "stages.quantize.schemes=[outside]"]
    stages += ["stages.finetune.terms.soft_targets.loss._target_=outside.absolute"]
    results = run(tmp_path, "task", *few, *stages, "stages.evaluate.baseline=null", onnx=False)

    measured = [model for model in results["models"] if model["backend"] == "outside"]
    assert [(model["role"], model["scheme"]) for model in measured] == [("teacher", "int4"), ("student", "int4")]
    assert all(model["scores"] and model["latency_ms"] and "failed" not in model for model in measured)
    for model in measured:
        assert np.median(model["requests_ms"]) == pytest.approx(model["requests"]["p50"], abs=1e-4)
        assert len(model["requests_ms"]) == model["requests"]["count"]
    proofs = atomic.read_json(tmp_path / "out" / "export" / run_folder.MANIFEST)["proofs"]["order"]
    assert proofs["outside int4"]["largest_difference"] < 1e-5
    assert distill.load(tmp_path / "out" / "export" / "order", backend="outside").predict([("a", "text")])

    read = decoded(results)
    shown = table.models_table(read)
    assert [row[2:4] for row in shown.rows if row[2] == "outside"] == [("outside", "int4")] * 2
    assert any(point.group == "outside" for point in figure.points(read))
    assert page.run_page(Run("", read), figure.svg(figure.points(read)))
    variants = data.page_data([Run("out", read, [])])["variants"]
    (variant,) = (one for one in variants if (one["backend"], one["role"]) == ("outside", "student"))
    assert "--backend outside --scheme int4" in variant["loading"]["command"]


def test_colours_are_those_of_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend without one has that of its place among what is drawn, as a group of runs has, and is grey in the page,
    whose script has a colour for what is not in its data."""
    plain = Backend("outside", "outside", (), "numpy")
    monkeypatch.setitem(BACKENDS, "outside", plain)
    point, groups = figure.Point("a", "student", 2.0, 99.0, group="outside"), ["torch", "outside"]
    assert figure._colour(point, groups) == figure.COLOURS[1]
    assert figure._colour(replace(point, group="openvino"), groups) == figure.COLOURS[2]
    monkeypatch.setitem(BACKENDS, "outside", replace(plain, colour=6))
    assert figure._colour(point, groups) == figure.COLOURS[6]
    known = ["torch", "onnxruntime", "openvino", "bitsandbytes", "torchao"]  # in the order of the lines of a page
    assert list(data._colours(figure.ON_DARK)) == [*known, "outside"]
    monkeypatch.setitem(BACKENDS, "outside", plain)
    assert list(data._colours(figure.COLOURS).items()) == list(zip(known, figure.COLOURS, strict=False))


def test_a_loss_is_a_function() -> None:
    """Any function of two tensors is a term of `DistillationLoss`. A recipe can name only the functions of `PLACES`, so
    that no config runs other code; a script that calls `distill.run` may add its own name to them first."""
    teacher = tiny.model("bert", "SequenceClassification", std=0.3, num_labels=3, **SIZES)
    student = distill.student(teacher, layers=1).eval()
    ids = torch.randint(5, 60, (4, 7), generator=torch.Generator().manual_seed(0))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.zeros(4, dtype=torch.long)}
    loss, parts = distill.DistillationLoss(student, teacher, [outside.absolute])(batch)
    inputs = {"input_ids": ids, "attention_mask": batch["attention_mask"]}
    expected = torch.nn.L1Loss()(student(**inputs).logits, teacher(**inputs).logits)
    assert list(parts) == ["absolute"]
    torch.testing.assert_close(loss, expected)


def test_a_setting_names_a_loss_that_was_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TESTS)
    node = {"_target_": "outside.absolute", "_partial_": True, "temperature": 2.0}
    assert len(list(instantiate.refusals(node, "loss", "loss"))) == 1
    monkeypatch.setitem(instantiate.PLACES, "loss", (*instantiate.PLACES["loss"], "outside.absolute"))
    assert instantiate.bind(node, "loss")(torch.ones(2, 3), torch.zeros(2, 3)).tolist() == [0.5, 0.5]


def test_a_kind_of_task_is_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ordered grades: output k of K - 1 is the logit that a grade is above k, as in ordinal regression by K - 1 binary
    classifiers (Frank and Hall 2001). The loss learns of it from the record alone."""

    def flags(grades: np.ndarray) -> np.ndarray:
        above = grades[:, None] > np.arange(3)
        return np.where(grades[:, None] == MISSING, MISSING, above).ravel()

    record = replace(CLASSIFICATION, name="ordinal", rows=MULTI_LABEL.rows, loss_targets=flags)
    teacher = tiny.model("bert", "SequenceClassification", std=0.3, num_labels=3, **SIZES)
    student = distill.student(teacher, layers=1).eval()
    terms = [distill.terms.Supervised(), distill.terms.SoftTargets(temperature=1.0)]
    with pytest.raises(ConfigError, match="kind: got ordinal; must be classification or multi_label for a model"):
        distill.DistillationLoss(student, teacher, terms, kind="ordinal")
    monkeypatch.setitem(TASK_TYPES, record.name, record)
    loss = distill.DistillationLoss(student, teacher, terms, kind="ordinal")

    ids = torch.randint(5, 60, (5, 7), generator=torch.Generator().manual_seed(0))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.tensor([0, 3, MISSING, 1, 2])}
    _, parts = loss(batch)
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    mine, theirs = (model(**inputs).logits.double() for model in (student, teacher))
    above = torch.tensor([[0, 0, 0], [1, 1, 1], [1, 0, 0], [1, 1, 0]]).double()
    supervised = torch.nn.BCEWithLogitsLoss()(mine[[0, 1, 3, 4]], above)
    bce = torch.nn.functional.binary_cross_entropy_with_logits
    soft = bce(mine, theirs.sigmoid()) - bce(theirs, theirs.sigmoid())  # KL of Bernoulli distributions
    torch.testing.assert_close(parts["supervised"].double(), supervised, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(parts["soft_targets"].double(), soft, atol=1e-6, rtol=1e-5)


def test_a_family_is_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """data2vec, whose modules are RoBERTa's in an encoder of another name: a teacher of it, and a student for BERT."""
    record = replace(ROBERTA, name="data2vec-text", encoder="data2vec_text")
    for table_of_families in (FAMILIES, STUDENTS):
        monkeypatch.setitem(table_of_families, record.name, record)
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48, "vocab_size": 60, "pad_token_id": 1}
    config = AutoConfig.for_model(record.name, num_hidden_layers=4, num_labels=3, **sizes)
    teacher = AutoModelForSequenceClassification.from_config(config).eval()

    student = distill.student(teacher, layers=2)
    assert type(student) is type(teacher)
    for ours, theirs in ((0, 0), (1, 3)):
        layers = (model.data2vec_text.encoder.layer for model in (student, teacher))
        mine, given = (layer[number].state_dict() for layer, number in zip(layers, (ours, theirs), strict=True))
        assert all(value.equal(mine[name]) for name, value in given.items())

    batch: dict[str, Tensor] = {"input_ids": torch.arange(5, 19).view(2, 7), "attention_mask": torch.ones(2, 7).long()}
    terms = [distill.terms.SoftTargets(), distill.terms.Hidden(layers="uniform"), distill.terms.Relations()]
    loss, parts = distill.DistillationLoss(student, teacher, terms)(batch | {"labels": torch.tensor([0, 1])})
    loss.backward()
    assert len(parts) == 3
    assert student.data2vec_text.encoder.layer[0].attention.self.query.weight.grad.abs().max() > 0

    bert = tiny.model("bert", "SequenceClassification", num_labels=3, **SIZES)
    other = distill.student(bert, layers=1, family=record.name, init="random")
    assert (other.config.model_type, other.config.num_hidden_layers, other.config.num_labels) == (record.name, 1, 3)
