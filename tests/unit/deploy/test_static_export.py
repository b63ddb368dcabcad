"""A static embedder in the files of model2vec: vectors as the embedder's own, with the libraries that load them."""

from __future__ import annotations

import importlib.util
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from distill.data.encode import special_tokens
from distill.deploy.export.embedder import PROJECTION, Embedder, export_embedder, vectors
from distill.deploy.export.static import FOLDER, add_static, static_vectors
from distill.errors import UserError
from distill.models import student
from distill.models.families.vectors import DENSE_FOLDER, read, write
from distill.models.write import write_model
from tests import tiny

LONG = " ".join(tiny.SENTENCES * 3)
TEXTS = [*tiny.SENTENCES[:4], "goats", "an % unknown 12 word", "[CLS] goats [UNK]", "", LONG]
LONGEST = 20


@pytest.fixture(scope="module", params=[None, 24])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """Folder of an exported static embedder, with a linear layer to a width or without, and its vectors of `TEXTS`."""
    folder, given = tmp_path_factory.mktemp("static"), tiny.tokenizer()
    teacher = tiny.model("bert", "MaskedLM", std=0.3, vocab_size=len(given))
    own, around, sizes = student.mean_tokenizer(given), special_tokens(given), {"hidden_size": None}
    model = student.static(teacher, own, given, around=around, pooling="mean", sizes=sizes, seed=0)
    with torch.no_grad():  # as after training
        noise = torch.randn(model.get_input_embeddings().weight.shape, generator=torch.Generator().manual_seed(3))
        model.get_input_embeddings().weight += 0.3 * noise
        model.get_input_embeddings().weight[own.pad_token_id] = 0
        model.model.norm.weight += torch.linspace(0, 1, 16)
    with write_model(folder / "model", model, own) as temporary:
        if request.param is not None:
            (temporary / PROJECTION).mkdir()
            weight = torch.randn(request.param, 16, generator=torch.Generator().manual_seed(2))
            save_file({"linear.weight": weight}, temporary / PROJECTION / "model.safetensors")
    embedder = Embedder(folder / "model", "mean", LONGEST)
    export_embedder(embedder, folder / "out", "")
    expected = vectors(embedder, own, TEXTS)
    add_static(folder / "out", LONGEST, TEXTS, lambda: expected)
    return folder / "out", expected


def test_files_give_the_vectors_of_the_embedder(exported: tuple[Path, np.ndarray]) -> None:
    folder, expected = exported
    np.testing.assert_allclose(static_vectors(folder / FOLDER, TEXTS), expected, atol=1e-5)
    assert not expected[TEXTS.index("")].any()
    assert np.ptp(np.delete(expected, TEXTS.index(""), 0), axis=0).min() > 0


def test_sentence_transformers_loads_it(exported: tuple[Path, np.ndarray]) -> None:
    from sentence_transformers import SentenceTransformer

    folder, expected = exported
    texts = [text for text in TEXTS if text]  # of an empty one it makes NaN or zeros, by version
    found = SentenceTransformer(str(folder / FOLDER), device="cpu").encode(texts, show_progress_bar=False)
    np.testing.assert_allclose(found, expected[[TEXTS.index(text) for text in texts]], atol=1e-5)


def test_model2vec_loads_it(exported: tuple[Path, np.ndarray]) -> None:
    model2vec: Any = importlib.import_module("model2vec")
    folder, expected = exported
    model = model2vec.StaticModel.from_pretrained(folder / FOLDER)
    longest = (LONGEST - 1) * model.median_token_length  # characters to which it cuts texts before their tokens
    short = [number for number, text in enumerate(TEXTS) if len(text) <= longest]
    assert len(short) > 4
    np.testing.assert_allclose(model.encode([TEXTS[number] for number in short]), expected[short], atol=1e-5)


def test_the_files_are_those_that_model2vec_reads(exported: tuple[Path, np.ndarray]) -> None:
    """As `save_pretrained` in model2vec/persistence/persistence.py writes them."""
    folder, expected = exported
    names = {"config.json", "tokenizer.json", "model.safetensors", "modules.json", "1_Normalize"}
    assert {path.name for path in (folder / FOLDER).iterdir()} == names | {"config_sentence_transformers.json"}
    assert json.loads((folder / FOLDER / "config.json").read_text()) == {
        "model_type": "model2vec",
        "architectures": ["StaticModel"],
        "hidden_dim": expected.shape[1],
        "normalize": True,
        "max_length": LONGEST - 1,
        "embedding_dtype": "float32",
    }
    (name, table), *others = load_file(folder / FOLDER / "model.safetensors").items()
    assert (name, table.dtype, others) == ("embeddings", torch.float32, [])
    assert table.shape == (len(tiny.tokenizer()), expected.shape[1])


@pytest.mark.parametrize("why", ["left", "lower", "not normalized", "bias", "max"])
def test_left_out_where_the_files_would_give_other_vectors(
    exported: tuple[Path, np.ndarray], tmp_path: Path, why: str
) -> None:
    copy = tmp_path / "again"
    shutil.copytree(exported[0], copy, ignore=shutil.ignore_patterns(FOLDER))
    stated = read(copy)
    assert stated is not None
    if why == "left":
        tiny.change(copy / "tokenizer_config.json", truncation_side="left")
    else:
        if why == "bias" and stated.width is None:
            pytest.skip("without a linear layer")
        if why == "bias":
            with tiny.weights(copy / DENSE_FOLDER) as weights:
                weights["linear.bias"] = torch.ones(stated.width)
        other: dict[str, dict[str, Any]] = {
            "lower": {"lower": True},
            "not normalized": {"normalized": False},
            "bias": {"bias": True},
            "max": {"pooling": "max"},
        }
        write(copy, replace(stated, **other[why]), 16, {})
    add_static(copy, LONGEST, TEXTS, lambda: exported[1])
    assert not (copy / FOLDER).exists()


def test_other_vectors_are_refused(exported: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    folder, expected = exported
    shutil.copytree(folder, tmp_path / "again", ignore=shutil.ignore_patterns(FOLDER))
    with pytest.raises(UserError, match="differ from the model's"):
        add_static(tmp_path / "again", LONGEST, TEXTS, lambda: expected[::-1])


def test_an_embedder_with_layers_has_none(tmp_path: Path) -> None:
    tiny.save(tmp_path / "model", "bert", "MaskedLM", seed=1)
    export_embedder(Embedder(tmp_path / "model", "mean", LONGEST), tmp_path / "out", "")
    add_static(tmp_path / "out", LONGEST, TEXTS, lambda: np.zeros(0))
    assert not (tmp_path / "out" / FOLDER).exists()
