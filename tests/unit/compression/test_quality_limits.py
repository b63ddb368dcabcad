"""The guard of quantization: sensitive modules stay in float, and a scheme that loses too much is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from scipy.stats import bootstrap
from sklearn.metrics import f1_score, recall_score
from transformers import AutoModelForSequenceClassification

from distill.compression.quantization.quality_limits import (
    Floats,
    Limits,
    Quality,
    Source,
    limits_of,
    load,
    quality,
    recall_losses,
    score_losses,
)
from distill.compression.quantization.quantize import MAKE, linears
from distill.config.schemes import ONNX, SCHEMES
from distill.data.encode import Encoded
from distill.data.task import Task
from distill.data.task_types import TASK_TYPES
from distill.deploy.export import quantized as exported
from distill.deploy.export.onnx import export_onnx
from distill.inference.latency import synthetic
from distill.inference.runners import torch_runner
from distill.models import teacher

Make = Callable[..., Path]
HURT = "bert.encoder.layer.1.attention.output.dense"


@pytest.fixture(autouse=True)
def _exports_are_made_once(export_once: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exported, "export_onnx", export_once)


@pytest.fixture
def machine() -> Any:
    return SimpleNamespace(device=torch.device("cpu"), threads=1, float32="fp32", log=lambda text: None)


def quantized(scheme: str | list[str], limit: float | None, source: Source, out: Path, machine: Any) -> exported.Files:
    schemes = [scheme] if isinstance(scheme, str) else scheme
    return exported.quantized(schemes, [source], out, [Limits(limit)], machine, lambda text: None)


@pytest.fixture
def folder(classifier: Make, tmp_path: Path) -> Path:
    """A classifier with one channel of the values of a layer so large that 8 bits hold nothing else; what reads them
    takes it out again, so that in float nothing is changed."""
    source, out = classifier("bert"), tmp_path / "model"
    model = AutoModelForSequenceClassification.from_pretrained(source)
    attention = model.get_submodule("bert.encoder.layer.1.attention")
    with torch.no_grad():
        attention.self.value.weight[3] *= 3000
        attention.self.value.bias[3] *= 3000
        attention.output.dense.weight[:, 3] /= 3000
    return saved(model, source, out)


@torch.no_grad()
def saved(model: Any, source: Path, out: Path) -> Path:
    """The model with its tokenizer in a folder, its head moved so that both labels come up."""
    batch = {key: torch.from_numpy(value) for key, value in synthetic((96, 16), 100).items()}
    logits = model.eval()(**batch).logits
    model.classifier.bias[0] -= (logits[:, 0] - logits[:, 1]).quantile(0.5)
    model.save_pretrained(out)
    teacher.load_tokenizer(source).save_pretrained(out)
    return out


def source_of(folder: Path, name: str = "own") -> Source:
    """Its own answers are the labels: in float it is right every time."""
    batch = synthetic((96, 16), 100)
    answers = torch_runner("x", folder, scheme="fp32", device="cpu", threads=1).run(batch)
    ids, types = batch["input_ids"], batch["token_type_ids"]
    labels = answers.argmax(1)
    assert 0.1 < labels.mean() < 0.9
    encoded = Encoded(ids.ravel().astype(np.int32), np.arange(0, ids.size + 1, 16), types.ravel(), labels)
    rows = [{key: value[i : i + 1] for key, value in batch.items()} for i in range(48)]
    task = Task(name, TASK_TYPES["classification"], ("text",), ("no", "yes"), ("accuracy",))
    texts = {"text": [f"text {number}" for number in range(len(ids))]}
    data: Any = SimpleNamespace(task=task, development={"validation": texts})
    return Source(folder, teacher.load_tokenizer(folder), data, rows, {"validation": encoded})


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["onnxruntime", "onnxruntime_static"])
def test_sensitive_modules_are_left_in_float(scheme: str, machine: Any, folder: Path, tmp_path: Path) -> None:
    source = source_of(folder)
    floats = Floats(machine, source)
    assert floats.quality.score == 100
    assert floats.order(SCHEMES[scheme])[0] == HURT
    out = tmp_path / "out"
    out.mkdir()
    collapsed = quantized(scheme, None, source, out, machine)
    assert (collapsed.failed, collapsed.kept) == ({}, {})
    run = load(SCHEMES[scheme], out / SCHEMES[scheme].file, machine)
    assert quality(run, source).score < 90
    guarded = quantized(scheme, 8, source, out, machine)
    assert guarded.failed == {}
    assert guarded.kept[scheme][0] == HURT
    run = load(SCHEMES[scheme], out / SCHEMES[scheme].file, machine)
    assert quality(run, source).score >= 92


@pytest.mark.slow
def test_no_head_of_several_may_lose_more_than_its_limits(machine: Any, folder: Path, tmp_path: Path) -> None:
    """Its most sensitive modules stay in float, and without that there is no file; nor does the other head's score
    count."""
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        model.classifier.weight.copy_(model.classifier.weight.flip(1))
    other = saved(model, folder, tmp_path / "other")
    sources, scheme = [source_of(folder, "one"), source_of(other, "two")], SCHEMES["onnxruntime"]
    out = tmp_path / "out"
    out.mkdir()

    def made(*limits: Limits) -> exported.Files:
        return exported.quantized(["onnxruntime"], sources, out, limits, machine, lambda text: None, one_encoder=True)

    def scores() -> list[float]:
        run = load(scheme, out / scheme.file, machine)
        parts = [lambda batch: run(batch)[:, :2], lambda batch: run(batch)[:, 2:]]
        return [quality(part, s).score for part, s in zip(parts, sources, strict=True)]

    assert made(Limits(), Limits()).kept == {}
    assert max(scores()) < 90
    guarded = made(Limits(), Limits(8))
    assert guarded.failed == {}
    assert guarded.onnx_difference <= 1e-3
    assert guarded.kept["onnxruntime"][0] == HURT
    assert scores()[1] >= 92
    refused = made(Limits(8), Limits(-1))
    assert refused.kept == {}
    assert re.match(r".*it loses .* on two, even with \d+ of its \d+ modules in float", refused.failed["onnxruntime"])
    assert not (out / scheme.file).exists()


@pytest.mark.slow
def test_a_sensitive_embedding_is_left_in_float(machine: Any, classifier: Make, tmp_path: Path) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(classifier("bert"))
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[-1] *= 3000  # a token of no text
    out = saved(model, classifier("bert"), tmp_path / "model")
    floats = Floats(machine, source_of(out))
    assert floats.order(SCHEMES["onnxruntime"])[0] == "bert.embeddings.word_embeddings"
    assert "bert.embeddings.word_embeddings" not in floats.order(SCHEMES["openvino"])
    made = quantized("onnxruntime", 8, source_of(out), tmp_path, machine)
    assert made.failed == {}
    assert "bert.embeddings.word_embeddings" in made.kept["onnxruntime"]


def test_unsupported_sizes_are_named(machine: Any, classifier: Make, folder: Path, tmp_path: Path) -> None:
    source = source_of(folder)
    floats, scheme = Floats(machine, source), SCHEMES["bitsandbytes_nf4"]
    assert floats.unfit(scheme) == floats.unfit(SCHEMES["bitsandbytes"]) == []
    layer = floats.model.bert.encoder.layer[0]
    layer.output.dense = torch.nn.Linear(128, 40)
    assert floats.unfit(scheme) == ["bert.encoder.layer.0.output.dense"]
    for name in linears(floats.model):
        floats.model.get_submodule(name).in_features = 63
    with pytest.raises(ValueError, match="none of the 12 linear modules has sizes that nf4 supports"):
        floats.unfit(scheme)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["bitsandbytes", "onnxruntime"])
def test_a_full_disk_is_not_a_scheme_that_failed(
    scheme: str, machine: Any, classifier: Make, tmp_path: Path, small_disk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(classifier(), num_hidden_layers=1)  # a layer takes 2 s
    source = source_of(saved(model, classifier(), tmp_path / "model"))
    monkeypatch.setattr(exported, "export_onnx", export_onnx)  # itself, not a copy of what it made before
    with small_disk(20_000), pytest.raises((OSError, SafetensorError)):
        quantized(scheme, None, source, tmp_path, machine)


@pytest.mark.slow
def test_a_scheme_that_stays_over_the_limit_is_refused_and_removed(machine: Any, folder: Path, tmp_path: Path) -> None:
    made = quantized("onnxruntime", -1, source_of(folder), tmp_path, machine)
    assert made.failed["onnxruntime"].startswith("ValueError: it loses ")
    assert "more than max_drop=-1, even with 7 of 15 modules left in float" in made.failed["onnxruntime"]
    assert (tmp_path / ONNX).is_file()
    assert not (tmp_path / SCHEMES["onnxruntime"].file).exists()


@pytest.mark.parametrize(
    ("in_headline", "smoke", "limited"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_tasks_outside_the_headline_and_smoke_runs_set_no_limit(in_headline: bool, smoke: bool, limited: bool) -> None:
    """Whatever a task is called."""
    task = Task("wnli", TASK_TYPES["classification"], ("text",), ("no", "yes"), (), in_headline=in_headline)
    limits = limits_of(0.5, 3, task, smoke)
    assert limits == (Limits(0.5, 3) if limited else Limits())


@pytest.mark.parametrize(
    ("score", "recall", "rows", "expected"),
    [
        (88.0, 90.0, 100, None),
        (87.9, 90.0, 100, "2.1 points, more than max_drop=2"),
        (float("nan"), 90.0, 100, "nan points, more than max_drop=2"),
        (90.0, 80.0, 100, None),
        (90.0, 79.0, 100, "11.0 points of recall of rare, more than max_recall_drop=10"),
        (90.0, 40.0, 2, None),
        (90.0, float("nan"), 100, "nan points of recall of rare, more than max_recall_drop=10"),
    ],
)
def test_the_score_and_each_label_have_a_limit(score: float, recall: float, rows: int, expected: str | None) -> None:
    before = Quality(90.0, {"usual": (90.0, 500), "rare": (90.0, rows)})
    after = Quality(score, {"usual": (90.0, 500), "rare": (recall, rows)})
    assert Limits(2.0, 10.0).exceeded(before, after) == expected
    assert Limits().exceeded(before, after) is None


@pytest.mark.slow
def test_files_of_a_failed_scheme_are_removed(
    machine: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def halfway(path: Path, out: Path, *_: Any) -> None:
        out.write_text("half")
        raise RuntimeError("no more")

    monkeypatch.setitem(MAKE, "onnxruntime", halfway)
    made = quantized("onnxruntime", None, source_of(folder), tmp_path, machine)
    assert made.failed == {"onnxruntime": "RuntimeError: no more"}
    assert {path.name for path in tmp_path.iterdir() if path != folder} == {ONNX}


def test_a_failed_export_is_reported_for_each_scheme_that_needs_it(
    machine: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(*_: Any) -> None:
        raise RuntimeError("no operator for it\nand more")

    monkeypatch.setattr(exported, "export_onnx", lacking)
    both = ["onnxruntime", "onnxruntime_static"]
    made = quantized(both, None, source_of(folder), tmp_path, machine)
    said = "RuntimeError: no operator for it"
    assert made.failed == {ONNX: said, "onnxruntime": said, "onnxruntime_static": said}
    assert [path for path in tmp_path.iterdir() if path != folder] == []


def measured(rows: int, wrong: int, task: Task) -> Quality:
    """What a model achieves that is wrong on the first rows. Every tenth row has the label yes."""
    labels = (np.arange(rows) % 10 == 0).astype(np.int64)
    predicted = np.where(np.arange(rows) < wrong, 1 - labels, labels)
    predictions = {(task.name, "development"): (predicted, labels)}
    right = predicted == labels
    recalls = {
        name: (100 * float(right[labels == n].mean()), int((labels == n).sum())) for n, name in enumerate(("no", "yes"))
    }
    return Quality(100 * float(right.mean()), recalls, predictions, task)


@pytest.mark.parametrize(("rows", "wrong", "refused"), [(40, 2, False), (4000, 200, True), (4000, 0, False)])
def test_a_loss_that_may_be_noise_exceeds_no_limit(rows: int, wrong: int, refused: bool) -> None:
    """Five percent of 40 rows are as many as of 4,000, but their interval includes 0."""
    task = Task("own", TASK_TYPES["classification"], ("text",), ("no", "yes"), ("accuracy",))
    before, after = measured(rows, 0, task), measured(rows, wrong, task)
    assert (Limits(2.0).exceeded(before, after) is not None) == refused
    assert (Limits(None, 2.0).exceeded(before, after) is not None) == refused


def sampled(wrong: float, task: Task) -> Quality:
    """A model with a share of wrong predictions, drawn at random, on a small and a large split."""
    random, predictions = np.random.default_rng(0), {}
    for split, rows in (("matched", 60), ("mismatched", 240)):
        labels = (random.random(rows) < 0.4).astype(np.int64)
        predicted = np.where(np.random.default_rng(rows).random(rows) < wrong, 1 - labels, labels)
        predictions[task.name, split] = (predicted, labels)
    return Quality(0.0, {}, predictions, task)


def test_losses_on_resamples_are_those_of_scipy() -> None:
    """The interval of a paired percentile bootstrap, of the mean over splits and of the recall over all their rows."""
    task = Task("own", TASK_TYPES["classification"], ("text",), ("no", "yes"), ("f1",))
    before, after = sampled(0.1, task), sampled(0.2, task)
    splits = [(labels, ours, after.predictions[key][0]) for key, (ours, labels) in before.predictions.items()]
    indices = tuple(np.arange(len(labels)) for labels, *_ in splits)

    def drawn(*rows: np.ndarray) -> list[tuple[np.ndarray, ...]]:
        return [tuple(each[r.astype(int)] for each in split) for split, r in zip(splits, rows, strict=True)]

    def f1(true: np.ndarray, said: np.ndarray) -> float:
        return float(2 * (true & said).sum() / (true.sum() + said.sum()))

    def recall(true: np.ndarray, said: np.ndarray) -> float:
        return float((true & said).sum() / true.sum())

    for true, ours, theirs in splits:  # thousands of calls of scikit-learn take ten seconds
        for said in (ours, theirs):
            assert (f1(true, said), recall(true, said)) == pytest.approx(
                (f1_score(true, said), recall_score(true, said))
            )

    def of_score(*rows: np.ndarray) -> float:
        return 100 * float(np.mean([f1(y, a) - f1(y, b) for y, a, b in drawn(*rows)]))

    def of_recall(*rows: np.ndarray) -> float:
        labels, ours, theirs = map(np.concatenate, zip(*drawn(*rows), strict=True))
        return 100 * (recall(labels, ours) - recall(labels, theirs))

    for losses, statistic in (
        (score_losses(before, after), of_score),
        (recall_losses("yes", before, after), of_recall),
    ):
        expected = bootstrap(
            indices, statistic, n_resamples=1000, vectorized=False, method="percentile", rng=np.random.default_rng(0)
        )
        assert len(losses) == 1000
        assert losses.mean() == pytest.approx(expected.bootstrap_distribution.mean(), abs=0.7)
        assert losses.std() == pytest.approx(expected.standard_error, rel=0.1)
        low, high = expected.confidence_interval
        assert np.percentile(losses, [2.5, 97.5]) == pytest.approx((low, high), abs=1.5)


def test_copies_of_rows_do_not_make_a_loss_certain() -> None:
    """Five rows of 100 that are lost may be noise; so may 200 of 4,000 that are copies of these 100."""
    task = Task("own", TASK_TYPES["classification"], ("text",), ("no", "yes"), ("accuracy",))
    before, after, copies, key = (
        measured(100, 0, task),
        measured(100, 5, task),
        np.tile(np.arange(100), 40),
        ("own", "development"),
    )

    def copied(quality: Quality, parts: dict[tuple[str, str], np.ndarray]) -> Quality:
        predicted, labels = quality.predictions[key]
        return replace(quality, predictions={key: (predicted[copies], labels[copies])}, clusters=parts)

    for losses in (score_losses, partial(recall_losses, "yes")):
        many = losses(copied(before, {key: copies}), copied(after, {}))
        assert many == pytest.approx(losses(before, after), nan_ok=True)
    assert Limits(4.9).exceeded(copied(before, {}), copied(after, {})) is not None


def test_a_resample_without_a_label_has_no_recall() -> None:
    task = Task("own", TASK_TYPES["classification"], ("text",), ("no", "yes"), ("accuracy",))
    labels = np.array([1, 0, 0])
    before, after = (Quality(0.0, {}, {("own", "test"): (p, labels)}, task) for p in (labels, np.zeros(3, np.int64)))
    losses = recall_losses("yes", before, after)
    assert set(losses[~np.isnan(losses)]) == {100.0}
    assert 0.2 < np.isnan(losses).mean() < 0.4  # (2 / 3) ** 3


def test_a_score_that_is_no_number_exceeds_every_limit() -> None:
    task = Task("own", TASK_TYPES["classification"], ("text",), ("no", "yes"), ("accuracy",))
    before = measured(40, 0, task)
    assert Limits(50.0).exceeded(before, Quality(float("nan"), before.recalls, before.predictions, task)) is not None
