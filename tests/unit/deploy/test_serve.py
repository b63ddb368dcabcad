"""Loaded models against plain transformers, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distill
from distill.data.task_types import TASK_TYPES
from distill.deploy import serve
from distill.deploy.export import cross_encoder
from distill.deploy.export.proof import plain_logits
from distill.deploy.export.record import FILE, Entry, Heads, Record, located, read, read_any, write
from distill.deploy.export.sample import hashed
from distill.errors import ConfigError, DataError, UserError
from tests import tiny
from tests.unit.deploy.conftest import recorded

Folders = dict[str, Path]


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert"])
@pytest.mark.parametrize("size", [1, 3, 32])
def test_outputs_are_those_of_plain_transformers_in_order(
    name: str, size: int, folders: Folders, sentences: list[str]
) -> None:
    model = serve.load(folders[name], threads=1)
    expected = plain_logits(folders[name], [[text] for text in sentences], max_length=45)
    assert (model.backend, model.scheme, model.max_length, model.columns) == ("torch", "fp32", 45, ())
    assert np.abs(model.outputs(sentences, batch_size=size) - expected).max() <= 1e-5
    assert np.ptp(expected, axis=0).min() > 1e-2
    # Called with one pair, a tokenizer of transformers takes an empty second text for none.
    pairs = [(first, second or "dawn") for first, second in zip(sentences, reversed(sentences), strict=True)]
    expected = plain_logits(folders[name], [list(pair) for pair in pairs], max_length=45)
    assert np.abs(model.outputs(pairs, batch_size=size) - expected).max() <= 1e-5


@pytest.fixture
def shared(folders: Folders, tmp_path: Path) -> Path:
    """A folder with two heads of one encoder, which differ in their weights and labels."""
    from transformers import AutoModelForSequenceClassification

    for name in ("weather", "trade"):
        shutil.copytree(folders["bert"], tmp_path / "both" / name)
    model = AutoModelForSequenceClassification.from_pretrained(folders["bert"])
    model.classifier.weight.data = model.classifier.weight.data.flip(1)
    model.save_pretrained(tmp_path / "both" / "trade")
    recorded(tmp_path / "both" / "weather")
    recorded(tmp_path / "both" / "trade", labels=("fisher", "smith", "tailor"))
    write(tmp_path / "both", Heads(("weather", "trade"), (Entry("torch", "fp32", "."),)))
    return tmp_path / "both"


def test_heads_of_one_encoder_predict_as_they_do_alone(shared: Path, sentences: list[str]) -> None:
    """One of them with a temperature."""
    recorded(shared / "trade", Entry("torch", "fp32", ".", temperature=3.0), labels=("fisher", "smith", "tailor"))
    loaded: Any = distill.load(shared)
    alone: dict[str, Any] = {name: distill.load(shared / name) for name in ("weather", "trade")}
    outputs = loaded.outputs(sentences)
    assert outputs.keys() == alone.keys()
    for name, model in alone.items():
        np.testing.assert_allclose(outputs[name], model.outputs(sentences), rtol=0, atol=1e-5)
    each = zip(*(model.predict(sentences) for model in alone.values()), strict=True)
    for row, own in zip(loaded.predict(sentences), each, strict=True):
        assert [entry["label"] for entry in row.values()] == [entry["label"] for entry in own]
        scores = [entry["score"] for entry in own]
        assert [entry["score"] for entry in row.values()] == pytest.approx(scores, abs=1e-5)
    assert loaded.predict([]) == []
    assert {name: part.shape for name, part in loaded.outputs([]).items()} == {"weather": (0, 3), "trade": (0, 3)}
    with pytest.raises(DataError, match="texts, number 1: got 3; must be texts"):
        loaded.predict([3])


def test_a_reranking_head_applies_the_activation_of_its_folder(tmp_path: Path, sentences: list[str]) -> None:
    from transformers import AutoModelForSequenceClassification

    for name in ("weather", "trade"):
        tiny.save(tmp_path / "both" / name, "bert", "SequenceClassification", num_labels=1, initializer_range=0.5)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "both" / "trade")
    model.classifier.weight.data *= 3
    model.save_pretrained(tmp_path / "both" / "trade")
    for name in ("weather", "trade"):
        recorded(tmp_path / "both" / name, kind=TASK_TYPES["reranking"], labels=(), columns=("query", "document"))
        cross_encoder.configure(tmp_path / "both" / name, "torch.nn.modules.activation.Sigmoid")
    write(tmp_path / "both", Heads(("weather", "trade"), (Entry("torch", "fp32", "."),)))
    pairs = list(zip(sentences, reversed(sentences), strict=True))
    predicted = distill.load(tmp_path / "both").predict(pairs)
    for name in ("weather", "trade"):
        alone = [each["score"] for each in distill.load(tmp_path / "both" / name).predict(pairs)]
        assert [row[name]["score"] for row in predicted] == pytest.approx(alone, abs=1e-6)
        assert all(0 < score < 1 for score in alone)


def test_each_head_has_the_temperature_of_the_artifact(shared: Path, sentences: list[str]) -> None:
    recorded(shared / "trade", Entry("torch", "fp32", ".", temperature=2.0), labels=("fisher", "smith", "tailor"))
    (shared / "onnx").mkdir()
    shutil.copyfile(shared / "trade" / "config.json", shared / "onnx" / "m.onnx")  # is not run here
    entry = Entry("onnxruntime", "int8", "onnx/m.onnx", temperatures={"trade": 4.0})
    write(shared, Heads(("weather", "trade"), (Entry("torch", "fp32", "."), entry)))
    stored = read_any(shared)
    assert isinstance(stored, Heads)
    of_trade = read(shared / "trade")
    assert of_trade is not None
    found = [serve._head(shared / "trade", of_trade, each).temperature for each in stored.artifacts]
    assert found == [2.0, 4.0]


def test_a_head_that_was_trained_on_is_not_that_of_the_artifacts_of_all(shared: Path, sentences: list[str]) -> None:
    recorded(shared / "trade", Entry("torch", "fp32", ".", temperature=2.0), labels=("fisher", "smith", "tailor"))
    before: Any = distill.load(shared)
    assert {name: head.temperature for name, head in before.heads.items()} == {"weather": 1.0, "trade": 2.0}
    with tiny.weights(shared / "trade") as weights:
        weights["classifier.bias"] += 9
    with pytest.warns(UserWarning, match="trade: its weights were changed after the export"):
        after: Any = distill.load(shared)
    assert after.heads["trade"].temperature == 1.0
    (shared / "onnx").mkdir()
    (shared / "onnx" / "m.onnx").touch()
    write(shared, Heads(("weather", "trade"), (Entry("onnxruntime", "int8", "onnx/m.onnx"),)))
    with pytest.raises(DataError, match=r"trade: got weights in model\.safetensors that were changed after the export"):
        distill.load(shared)


def test_heads_with_different_encoders_are_refused(shared: Path) -> None:
    with tiny.weights(shared / "trade") as weights:
        weights["bert.encoder.layer.0.output.dense.bias"] += 1e-6
    with pytest.raises(DataError, match=r"trade: got another encoder than that of weather; must be the same in all"):
        distill.load(shared)
    distill.load(shared / "trade")


@pytest.mark.parametrize("heads", [[], ["a", "a"], ["a", "../b"], ["a", 3], "ab"])
def test_a_damaged_record_of_heads_is_refused(heads: Any, shared: Path) -> None:
    tiny.change(shared / FILE, heads=heads)
    with pytest.raises(DataError, match=rf"{FILE}: got heads .*; must be the file that the export stage"):
        distill.load(shared)


def test_a_folder_of_heads_is_not_one_model(shared: Path) -> None:
    with pytest.raises(ConfigError, match=r"both, with several heads; must be .*; choose .*weather or .*trade$"):
        read(shared)
    assert located(shared.parent) == shared
    (shared / "trade" / FILE).unlink()
    with pytest.raises(DataError, match=rf"trade: got no {FILE}; must be an exported head; copy the folder again"):
        distill.load(shared)


def test_batches_have_no_more_rows_than_asked(folders: Folders, sentences: list[str]) -> None:
    model, rows = serve.load(folders["bert"]), list[int]()
    run = model.run
    object.__setattr__(model, "run", lambda batch: [rows.append(len(batch["input_ids"])), run(batch)][1])
    model.outputs(sentences, batch_size=4)
    object.__setattr__(model, "row_by_row", True)
    model.outputs(sentences[:3], batch_size=4)
    assert rows == [4, 4, 3, 1, 1, 1]


def test_predictions_of_each_kind(folders: Folders, sentences: list[str]) -> None:
    model = distill.load(folders["bert"])
    assert model.predict([]) == []
    logits = model.outputs(sentences).astype(np.float64)
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    for prediction, row in zip(model.predict(sentences), shares, strict=True):
        assert list(prediction) == ["label", "score", "scores"]
        assert list(prediction["scores"]) == ["boat", "baker", "storm"] == list(model.labels)
        assert np.allclose(list(prediction["scores"].values()), row, atol=1e-9)
        assert prediction["label"] == model.labels[row.argmax()]
        assert prediction["score"] == max(prediction["scores"].values())
    assert list(serve.load(folders["roberta"]).predict(["boat"])[0]["scores"]) == ["0", "1", "2", "3"]
    number = serve.load(folders["distilbert"])
    assert number.labels == ()
    assert number.predict(sentences) == [{"score": value} for value in number.outputs(sentences)[:, 0].tolist()]
    assert json.loads(json.dumps(model.predict(sentences))) == model.predict(sentences)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_labels_above_the_threshold(share: float, folders: Folders, sentences: list[str], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folders["multi_label"], tmp_path / "copy"))
    scores = 1 / (1 + np.exp(-serve.load(folder, max_length=40).outputs(sentences).astype(np.float64)))
    ordered = np.sort(scores, axis=None)
    # In the widest gap near the quantile: rounding, which differs between processors, must not move a score across it.
    near = int(share * len(ordered)) + np.arange(-2, 3)
    below = near[(ordered[near + 1] - ordered[near]).argmax()]
    threshold = float(ordered[below : below + 2].mean())
    recorded(folder, kind=TASK_TYPES["multi_label"], labels=("a", "b", "c"), threshold=threshold)
    model = serve.load(folder)
    for prediction, row in zip(model.predict(sentences), scores, strict=True):
        assert np.allclose(list(prediction["scores"].values()), row, atol=1e-9)
        assert prediction["labels"] == [label for label, score in zip("abc", row, strict=True) if score > threshold]
    assert 0 < sum(len(p["labels"]) for p in model.predict(sentences)) < 3 * len(sentences)


def test_scores_are_scaled_by_the_temperature_of_the_artifact(copy: Path, sentences: list[str]) -> None:
    before = serve.load(recorded(copy))
    after = serve.load(recorded(copy, Entry("torch", "fp32", ".", temperature=2.5)))
    logits = before.outputs(sentences).astype(np.float64) / 2.5
    np.testing.assert_array_equal(after.outputs(sentences), before.outputs(sentences))
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    for scaled, plain, row in zip(after.predict(sentences), before.predict(sentences), shares, strict=True):
        assert scaled["label"] == plain["label"]
        assert scaled["score"] < plain["score"]
        assert np.allclose(list(scaled["scores"].values()), row, atol=1e-6)


@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("temperature", [0.3, 4.0])
def test_a_temperature_changes_no_label(
    threshold: float, temperature: float, folders: Folders, sentences: list[str], tmp_path: Path
) -> None:
    folder, predictions = Path(shutil.copytree(folders["multi_label"], tmp_path / "copy")), []
    for entry in (Entry("torch", "fp32", "."), Entry("torch", "fp32", ".", temperature=temperature)):
        recorded(folder, entry, kind=TASK_TYPES["multi_label"], labels=("a", "b", "c"), threshold=threshold)
        predictions.append(serve.load(folder).predict(sentences))
    assert [p["labels"] for p in predictions[0]] == [p["labels"] for p in predictions[1]]
    assert predictions[0] != predictions[1]


def test_a_folder_without_a_record_has_the_kind_of_its_config(folders: Folders) -> None:
    kinds = {name: serve.load(folder).kind.name for name, folder in folders.items()}
    assert kinds == {
        "bert": "classification", "roberta": "classification", "distilbert": "regression", "multi_label": "multi_label",
    }  # fmt: skip


def test_the_record_is_read_as_it_was_written(copy: Path) -> None:
    entries = (Entry("torch", "fp32", "."), Entry("onnxruntime", "int8", "onnx/x.onnx", 1.13, 8, 128, 0.99, 1.4))
    record = Record("t", TASK_TYPES["regression"], (), ("q", "s"), 64, entries, 0.5, (1.0, 5.0))
    write(copy, record)
    assert read(copy) == replace(record, weights=hashed(copy))
    entries += (Entry("onnxruntime", "fp32", "onnx/y.onnx", single_ms=0.5, thresholds={"a": 0.25, "b": 1e-9}),)
    labels = Record("t", TASK_TYPES["multi_label"], ("a", "b", "c"), ("q", "s"), 64, entries)
    write(copy, labels)
    assert read(copy) == replace(labels, weights=hashed(copy))
    assert not {"ms", "temperature", "thresholds"} & json.loads((copy / FILE).read_text())["artifacts"][0].keys()
    recorded(copy)
    model = serve.load(copy)
    assert (model.max_length, model.columns, serve.load(copy, max_length=12).max_length) == (40, ("body",), 12)


ENTRIES = (
    Entry("torch", "fp32", ".", 4.0),
    Entry("onnxruntime", "fp32", "onnx/model.onnx", 3.0),
    Entry("onnxruntime", "int8", "onnx/model_int8.onnx", 2.0),
    Entry("openvino", "int8", "openvino", 1.0),
    Entry("bitsandbytes", "int8", "bitsandbytes"),
)


@pytest.mark.parametrize("place", ["model_int8.onnx", "parts"])
def test_the_file_of_another_model_is_refused(place: str, copy: Path) -> None:
    file = copy / place / "model.bin" if place == "parts" else copy / place
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"of this model")
    folder = recorded(copy, Entry("onnxruntime", "int8", place))
    file.write_bytes(b"of that model")
    with pytest.raises(
        DataError, match=rf"{place}: got another content than that of the exported artifact onnxruntime"
    ):
        serve.load(folder)


@pytest.mark.parametrize(("flags", "expected"), [(["avx2", "avx512_bf16"], "torch bf16"), (["avx2"], "torch fp32")])
def test_bfloat16_is_chosen_where_the_processor_has_it(
    flags: list[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "cpu_flags", lambda: flags)
    entries = (Entry("torch", "fp32", ".", 4.0), Entry("torch", "bf16", ".", 2.0))
    assert serve.chosen(entries, None, None, "cpu").name == expected
    assert serve.chosen(entries, None, "bf16", "cpu").name == "torch bf16"
    assert serve.chosen(entries, None, None, "cuda").name == "torch bf16"


def test_the_fastest_installed_artifact_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    def name(backend: str | None = None, scheme: str | None = None, device: str = "cpu") -> str:
        return serve.chosen(ENTRIES, backend, scheme, device).name

    absent = {"openvino"}
    monkeypatch.setattr(serve, "find_spec", lambda package: None if package in absent else object())
    assert name() == "onnxruntime int8"
    assert name(device="cuda") == "torch fp32"
    assert name("onnxruntime") == "onnxruntime int8"
    assert name("onnxruntime", "fp32") == "onnxruntime fp32"
    assert name(scheme="fp32") == "onnxruntime fp32"
    assert name("bitsandbytes") == "bitsandbytes int8"
    with pytest.raises(
        ConfigError, match="backend: got openvino; must be installed here; run pip install openvino, or"
    ):
        name("openvino")
    absent |= {"onnxruntime", "torch", "bitsandbytes"}
    with pytest.raises(ConfigError, match=r"^backend: got onnxruntime; .* run pip install onnxruntime, or"):
        name()
    absent -= {"onnxruntime", "torch", "bitsandbytes"}
    with pytest.raises(ConfigError, match=r"^device: got cuda; must be cpu for onnxruntime fp32"):
        name("onnxruntime", device="cuda")
    with pytest.raises(ConfigError, match=r"^backend and scheme: got torch int8; must be of torch fp32, onnxruntime"):
        name("torch", "int8")
    absent.clear()
    assert name() == "openvino int8"
    untimed = tuple(Entry(e.backend, e.scheme, e.path) for e in ENTRIES)
    assert serve.chosen(untimed, None, None, "cpu").name == "torch fp32"


def test_the_only_exported_folder_in_a_folder_is_meant(folders: Folders, tmp_path: Path) -> None:
    first = Path(shutil.copytree(folders["bert"], tmp_path / "run" / "export" / "tickets"))
    recorded(first)
    assert serve.load(tmp_path / "run" / "export").folder == first
    assert serve.load(str(tmp_path / "run")).folder == first
    recorded(Path(shutil.copytree(folders["bert"], tmp_path / "run" / "export" / "topics")))
    with pytest.raises(ConfigError, match=r"with several exported folders; .*tickets or .*topics$"):
        serve.load(tmp_path / "run" / "export")


ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"backend": "tensorrt"}, r"^backend: got tensorrt; must be of torch fp32; "),
    ({"scheme": "int8"}, r"^scheme: got int8; must be of torch fp32; "),
    ({"device": "tpu9"}, r"^device: got tpu9; must be a device"),
    ({"threads": 0}, r"^threads: got 0; must be at least 1"),
    ({"max_length": 46}, r"^max_length: got 46; must be from 8 to 45"),
    ({"max_length": 2}, r"^max_length: got 2; must be from 8 to 45"),
]


@pytest.mark.parametrize(("arguments", "message"), ARGUMENTS, ids=str)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str, folders: Folders) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        serve.load(folders["bert"], **arguments)
    assert len(refused.value.messages) == 1


TEXTS: list[tuple[Any, str]] = [
    ("boat", "^texts: got a str; must be a list"),
    (3, "^texts: got a int; must be a list"),
    (["boat", 3], "^texts, number 2: got 3; must be texts, as the others"),
    (["boat", None], "^texts, number 2: got None; must be texts"),
    ([("a", "b"), "boat"], "^texts, number 2: got 'boat'; must be pairs of texts"),
    (["boat", ("a", "b")], "^texts, number 2: got \\('a', 'b'\\); must be texts"),
    ([("a", "b", "c")], "^texts, number 1: got \\('a', 'b', 'c'\\)"),
    ([("a", 1)], "^texts, number 1: got \\('a', 1\\)"),
    (["fine", "bad \udcff"], "^texts, number 2: got a lone surrogate; must be Unicode"),
]


@pytest.mark.parametrize(("texts", "message"), TEXTS, ids=str)
def test_wrong_texts_are_refused(texts: Any, message: str, folders: Folders) -> None:
    model = serve.load(folders["bert"])
    with pytest.raises(DataError, match=message):
        model.predict(texts)


def test_a_tokenizer_that_panics_is_refused_in_one_line(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the regular expressions of tokenizers do where a pattern backtracks too often in a text."""

    class PanicException(BaseException):
        pass

    def panics(*arguments: Any) -> None:
        raise PanicException("Onig: Regex search error: retry-limit-in-match over")

    model = serve.load(copy)
    monkeypatch.setattr("distill.deploy.serve.model.encode", panics)
    with pytest.raises(DataError, match=r"a tokenizer that fails on one of the texts \(Onig: .* over\); must"):
        model.predict(["a"])


def test_single_texts_for_a_model_of_pairs_are_refused(copy: Path) -> None:
    model = serve.load(recorded(copy, columns=("q", "s")))
    assert len(model.predict([("boat", "storm"), ["a", "b"]])) == 2  # type: ignore[list-item]
    with pytest.raises(DataError, match="number 1: got 'boat'; must be pairs of texts"):
        model.predict(["boat"])


def changed(**more: Any) -> Callable[[Path], Any]:
    return lambda folder: tiny.change(recorded(folder) / FILE, **more)


def artifact(**more: Any) -> Callable[[Path], Any]:
    return changed(artifacts=[{"backend": "torch", "scheme": "fp32", "path": "."} | more])


def onnx(folder: Path) -> None:
    recorded(folder, Entry("onnxruntime", "int8", "onnx/model_int8.onnx", 1.0))
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model_int8.onnx").write_bytes(b"cut short")


DAMAGED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no JSON": (lambda f: (f / FILE).write_text("{"), "distill.json: got broken JSON .Expecting property name"),
    "not UTF-8": (lambda f: (f / FILE).write_bytes(b"\xff"), "distill.json: got bytes that are not UTF-8"),
    "a folder": (lambda f: (f / FILE).mkdir(), "distill.json: got a folder"),
    "a list": (lambda f: (f / FILE).write_text("[]"), "distill.json: got a list; must be"),
    "no labels": (changed(labels=...), "distill.json: got no 'labels'; must be"),
    "a newer schema": (changed(schema=2), "distill.json: got schema 2; must be"),
    "an unknown kind": (changed(kind="poems"), "got kind 'poems'"),
    "a kind that is a list": (changed(kind=[]), r"got kind \[\]"),
    "labels without names": (changed(labels=[]), r"got labels \[\]"),
    "one name twice": (changed(labels=["a", "a", "b"]), "got labels"),
    "too few labels": (
        changed(labels=["a", "b"]),
        r"got the labels boat, baker, storm, and a, b in",
    ),
    "three columns": (changed(columns=["a", "b", "c"]), "got columns"),
    "a length in words": (changed(max_length="long"), "got max_length 'long'"),
    "a threshold of 1": (changed(threshold=1), "got threshold 1"),
    "half a range": (changed(range=[1]), r"got range \[1\]"),
    "no artifact": (changed(artifacts=[]), r"got artifacts \[\]"),
    "an artifact without a path": (changed(artifacts=[{"backend": "torch", "scheme": "fp32"}]), "got no 'path'"),
    "an unknown backend": (artifact(backend="tensorrt"), "got backend 'tensorrt'"),
    "a path outside": (artifact(path="../bert"), "got path '../bert'"),
    "an absolute path": (artifact(path="/etc"), "got path '/etc'"),
    "a time in words": (artifact(ms="fast"), "got ms 'fast'"),
    "a temperature of 0": (artifact(temperature=0), "got temperature 0"),
    "an artifact that is absent": (artifact(path="onnx"), "onnx: got no such file; must be the artifact torch fp32"),
    "an ONNX file cut short": (onnx, r"model_int8\.onnx: got files that cannot be loaded .*; must be a whole artifact"),
    "weights cut short": (lambda f: (f / "model.safetensors").write_bytes(b"{"), "safetensors: got a damaged file"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), r"got no \*.safetensors"),
    "no config": (lambda f: (f / "config.json").unlink(), "copy, which has no config.json; must be"),
    "a config cut short": (lambda f: (f / "config.json").write_text("{"), "copy: got files that cannot be loaded"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "copy: got no tokenizer; must contain"),
    "another model's record": (changed(kind="regression", labels=[]), "copy: got 3 outputs; must be 1"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_folder_is_refused_in_one_line(name: str, copy: Path) -> None:
    damage, message = DAMAGED[name]
    damage(copy)
    with pytest.raises(UserError) as refused:
        serve.load(copy)
    (line,) = refused.value.messages
    assert re.search(message, line), line
    assert "\n" not in line
    assert "; must " in line


def test_folders_that_cannot_be_served_are_refused(tmp_path: Path, folders: Folders, copy: Path) -> None:
    with pytest.raises(ConfigError, match=r"^folder: got bert-base-uncased; must be a local folder; "):
        serve.load("bert-base-uncased")
    with pytest.raises(ConfigError, match=r"which has no config.json; must be one exported folder"):
        serve.load(tmp_path)
    tiny.change(copy / "config.json", architectures=["BertForMaskedLM"])
    with pytest.raises(DataError, match="got architectures BertForMaskedLM, and weights of a head"):
        serve.load(copy)
    tiny.change(copy / "config.json", architectures=["BertForSequenceClassification"], model_type="vit")
    with pytest.raises(UserError, match="got "):
        serve.load(copy)
