"""Embedders of every family: vectors are those of sentence-transformers, also after saving, pruning and ONNX export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from distill.compression.pruning.prune import Kept, everything, pruned
from distill.compression.quantization.quantize import always_float, bitsandbytes_int8, linears
from distill.config import Teacher
from distill.deploy.export.onnx import export_onnx, onnx_parity
from distill.errors import ConfigError, DataError
from distill.inference.cost import gmacs, parameters, size_mib, size_mib_of
from distill.inference.runners import onnx_runner, torch_runner
from distill.models import families, student, teacher
from distill.models.families import vectors
from distill.models.families.embedding import EncoderForVectors
from distill.models.families.head import stored_head
from distill.models.families.record import VECTORS
from distill.runtime.storage import atomic
from tests import tiny

TEXTS = tiny.SENTENCES
USUAL = vectors.Vectors()


def made(folder: Path, name: str = "bert", settings: vectors.Vectors = USUAL, **sizes: Any) -> Any:
    """A random embedder, saved with its tokenizer."""
    tiny.save(folder, name, "", std=0.3, **sizes)
    model = EncoderForVectors.from_pretrained(folder)
    width = settings.width
    model.vectors = vectors.Vectors(**{**vars(settings), "width": None})
    if width is not None:
        torch.manual_seed(1)
        model.to_width(width)
        model.vectors = settings
        model.dense = torch.nn.Linear(16, width, bias=settings.bias)
    vectors.into_config(model.config, model.vectors)
    model.save_pretrained(folder)
    return model


def elsewhere(folder: Path, texts: list[str] = TEXTS) -> np.ndarray:
    """What sentence-transformers makes of texts, in batches."""
    from sentence_transformers import SentenceTransformer

    return np.asarray(SentenceTransformer(str(folder), device="cpu").encode(texts, show_progress_bar=False))


@torch.no_grad()
def of_model(model: Any, folder: Path, texts: list[str] = TEXTS) -> np.ndarray:
    tokenizer = teacher.load_tokenizer(folder)
    batch = dict(tokenizer(texts, padding=True, return_tensors="pt"))
    return families.logits(model, batch).numpy()  # type: ignore[no-any-return]


QUICK = ("bert",)
IN_ONNX = ("bert", "roberta", "distilbert", "mpnet", "modernbert")
"""Families whose embedders are exported: with and without token types, with positions counted after the padding, with a
bias of distances, and without absolute positions. That the encoder of every family is exported is in test_compression,
and what follows it is the same in all."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in families.STUDENTS]
)
def test_every_family(name: str, tmp_path: Path) -> None:
    layers = 2 if name == "modernbert" else 1  # whose layers are not all of one kind
    made(tmp_path / "given", name, num_hidden_layers=layers)
    model = EncoderForVectors.from_pretrained(tmp_path / "given")
    expected = elsewhere(tmp_path / "given")
    np.testing.assert_allclose(of_model(model, tmp_path / "given"), expected, atol=1e-5)
    assert np.ptp(expected, axis=0).min() > 0
    assert families.depth(model) == len(families.layers(model)) == layers
    assert families.encoder(model) is model.encoder
    head = stored_head(tmp_path / "given")
    assert head is not None
    assert (head.architecture, head.outputs) == (VECTORS, 16)
    # As every stage does it: the class from the config alone.
    loaded = teacher.read_config(tmp_path / "given")
    assert families.auto_class(loaded) is EncoderForVectors
    run = torch_runner("torch", tmp_path / "given", scheme="fp32", device="cpu", threads=1).run
    batch = teacher.load_tokenizer(tmp_path / "given")(TEXTS, padding=True, return_tensors="np")
    np.testing.assert_allclose(run(dict(batch)), expected, atol=1e-5)
    assert gmacs(tmp_path / "given") > 0
    assert size_mib_of(loaded) == pytest.approx(size_mib(tmp_path / "given"), rel=0.25)  # a tiny file is mostly names
    if name in IN_ONNX:
        export_onnx(tmp_path / "given", tmp_path / "model.onnx")
        assert onnx_parity(tmp_path / "given", tmp_path / "model.onnx") < 1e-4
        onnx = onnx_runner("onnx", tmp_path / "model.onnx", scheme="fp32", threads=1).run
        np.testing.assert_allclose(onnx(dict(batch)), expected, atol=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        vectors.Vectors("cls"),
        vectors.Vectors("max", normalized=False),
        vectors.Vectors(width=24),
        vectors.Vectors("cls", 8, bias=True, tanh=True, prompts={"query": "q: ", "passage": "p: "}, similarity="dot"),
    ],
)
def test_every_form_of_vectors(settings: vectors.Vectors, tmp_path: Path) -> None:
    made(tmp_path / "model", settings=settings)
    expected = elsewhere(tmp_path / "model")
    assert expected.shape == (8, settings.width or 16)
    model = EncoderForVectors.from_pretrained(tmp_path / "model")
    assert model.vectors == settings
    np.testing.assert_allclose(of_model(model, tmp_path / "model"), expected, atol=1e-5)
    lengths = np.linalg.norm(expected, axis=1)
    assert np.allclose(lengths, 1, atol=1e-5) == settings.normalized
    model.save_pretrained(tmp_path / "again")
    assert vectors.read(tmp_path / "again") == settings
    assert parameters(tmp_path / "again") == sum(p.numel() for p in model.parameters())
    head = stored_head(tmp_path / "model")
    assert head is not None
    assert head.prompts == (("q: ", "p: ") if settings.prompts else ("", ""))


def test_plain_transformers_loads_the_encoder(tmp_path: Path) -> None:
    from transformers import AutoModel

    model = made(tmp_path / "model")
    batch = dict(teacher.load_tokenizer(tmp_path / "model")(TEXTS, padding=True, return_tensors="pt"))
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(tmp_path / "model").eval()(**batch).last_hidden_state
        torch.testing.assert_close(hidden, model.encoder(**batch).last_hidden_state)


def test_the_embedded_teacher_is_an_embedder() -> None:
    folder = Path(teacher.resolve(Teacher()))
    model = EncoderForVectors.from_pretrained(folder)
    assert not model.training
    np.testing.assert_allclose(of_model(model, folder), elsewhere(folder), atol=1e-5)
    head = stored_head(folder)
    assert head is not None
    assert (head.architecture, head.outputs) == (VECTORS, 384)


@pytest.mark.parametrize("name", ["bert", "modernbert", "mpnet"])
def test_a_pruned_embedder_keeps_the_width_of_its_vectors(name: str, tmp_path: Path) -> None:
    model = made(tmp_path / "model", name)
    whole = everything(model)
    kept = Kept([0, 2], torch.arange(8), [torch.tensor([0])] * 2, whole.ffn[:2])
    small = pruned(model, kept)
    assert (small.config.hidden_size, small.width, len(families.layers(small))) == (8, 16, 2)
    small.save_pretrained(tmp_path / "small")
    teacher.load_tokenizer(tmp_path / "model").save_pretrained(tmp_path / "small")
    expected = elsewhere(tmp_path / "small")
    assert expected.shape == (8, 16)
    np.testing.assert_allclose(of_model(small, tmp_path / "small"), expected, atol=1e-5)
    np.testing.assert_allclose(expected[:, 8:], 0, atol=1e-7)  # at first: training fills them
    without_width = pruned(model, everything(model, [0, 2]))
    assert without_width.vectors.width is None
    layers = student.from_teacher(model, [0, 2], init="teacher_layers", seed=0).eval()
    np.testing.assert_array_equal(of_model(layers, tmp_path / "model"), of_model(without_width, tmp_path / "model"))


def test_a_wider_layer_keeps_cosines(tmp_path: Path) -> None:
    model = made(tmp_path / "model")
    before = of_model(model, tmp_path / "model")
    model.to_width(24)
    after = of_model(model, tmp_path / "model")
    assert after.shape == (8, 24)
    np.testing.assert_allclose(after @ after.T, before @ before.T, atol=1e-5)
    model.to_width(24)
    with pytest.raises(ConfigError, match=r"student.name: got an embedder of 24 dimensions; must have those of the te"):
        model.to_width(32)


def test_quantized_folders_load_elsewhere(tmp_path: Path) -> None:
    model = made(tmp_path / "model", settings=vectors.Vectors(width=24))
    assert always_float(model) == ["dense"]
    assert linears(model)
    assert all(name.startswith("bert.encoder.layer.") for name in linears(model))
    keep = ["dense", "bert.encoder.layer.0.output.dense"]
    bitsandbytes_int8(tmp_path / "model", tmp_path / "int8", keep, [])
    run = torch_runner("int8", tmp_path / "int8", scheme="int8", device="cpu", threads=1).run
    batch = dict(teacher.load_tokenizer(tmp_path / "model")(TEXTS, padding=True, return_tensors="np"))
    np.testing.assert_allclose(run(batch), elsewhere(tmp_path / "int8"), atol=1e-3)
    loaded = EncoderForVectors.from_pretrained(tmp_path / "int8")
    kinds = {name: type(module).__name__ for name, module in loaded.named_modules() if name in (*keep, *linears(model))}
    assert kinds.pop("dense") == kinds.pop("bert.encoder.layer.0.output.dense") == "Linear"
    assert {*kinds.values()} == {"Linear8bitLt"}


MODULE = "sentence_transformers.models."


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "modules.json",
            [{"type": f"{MODULE}{name}", "path": ""} for name in ("Transformer", "Pooling", "CNN")],
            "got the modules Transformer, Pooling, CNN; must be Transformer, Pooling or Transformer, Pooling, Norm",
        ),
        ("1_Pooling/config.json", {"pooling_mode": "median"}, "must be one of mean, cls, max, mean_sqrt_len_tokens, "),
        (
            "1_Pooling/config.json",
            {"pooling_mode": ["mean", "cls"]},
            "must be one of mean, cls, max, mean_sqrt_len_tokens, weightedmean, lasttoken; ",
        ),
        (
            "2_Dense/config.json",
            {"activation_function": "torch.nn.GELU", "out_features": 24},
            "got torch.nn.GELU; must be",
        ),
    ],
)
def test_other_modules_are_refused(file: str, content: Any, message: str, tmp_path: Path) -> None:
    made(tmp_path, settings=vectors.Vectors(width=24))
    atomic.write_json(tmp_path / file, content)
    with pytest.raises(DataError, match=message):
        EncoderForVectors.from_pretrained(tmp_path)
    with pytest.raises(DataError, match=message):  # it is no plain encoder either
        stored_head(tmp_path)


def test_a_classifier_made_from_an_embedder_is_a_classifier(tmp_path: Path) -> None:
    made(tmp_path / "model")
    classifier = teacher.load_classifier(tmp_path / "model", 3)
    classifier.save_pretrained(tmp_path / "classifier")
    loaded = teacher.read_config(tmp_path / "classifier")
    assert families.auto_class(loaded).__name__ == "AutoModelForSequenceClassification"
    head = stored_head(tmp_path / "classifier")
    assert head is not None
    assert head.outputs == 3


def test_a_damaged_layer_is_refused(tmp_path: Path) -> None:
    made(tmp_path, settings=vectors.Vectors(width=24))
    save_file({"linear.weight": torch.zeros(24, 8)}, tmp_path / "2_Dense" / "model.safetensors")
    with pytest.raises(DataError, match=r"got linear.weight \[24, 8\]; must be linear.weight \[24, 16\], as"):
        EncoderForVectors.from_pretrained(tmp_path)
