"""A static embedder in the files of model2vec, which sentence-transformers loads too: a vector for each token, and a
tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

from distill.data.task_types.embedding import unit
from distill.deploy.export.onnx import loaded
from distill.deploy.export.proof import difference
from distill.models import families
from distill.models.families import vectors
from distill.models.families.sentence import MODEL, MODULES
from distill.models.student import is_static
from distill.models.teacher import read_config
from distill.runtime.storage.atomic import read_json, write_json, writing

FOLDER = "static"
"""Folder below that of an embedder."""
_TABLE, _TOKENS, _WEIGHTS = "embeddings", "tokenizer.json", "model.safetensors"
_CLASS = "sentence_transformers.models."


def add_static(folder: Path, longest: int, texts: Sequence[str], expected: Callable[[], np.ndarray]) -> None:
    """Write `FOLDER` into the folder of an exported embedder, and check it.

    Nothing is written for an embedder that those files cannot describe: one that is not static, whose vectors do not
    follow from a mean of its tokens', whose texts are cut on the left, which model2vec does not do, or are lower-cased
    before the tokenizer.

    Args:
        longest: number of tokens to which texts are truncated, with the one that the tokenizer puts before them.
        texts: for the check.
        expected: returns their vectors [n, D].

    Raises:
        UserError: if the files give other vectors.
    """
    stated = vectors.read(folder) or vectors.Vectors()
    side = read_json(folder / "tokenizer_config.json").get("truncation_side", "right")
    of_means = stated.pooling == "mean" and stated.normalized and not stated.bias and not stated.tanh
    if not (is_static(read_config(folder, "folder")) and of_means and side == "right" and not stated.lower):
        return
    table = token_table(loaded(folder, torch.float32))
    truncation = {"direction": "Right", "max_length": longest - 1, "strategy": "LongestFirst", "stride": 0}
    modules = [("0", ".", "StaticEmbedding"), ("1", "1_Normalize", "Normalize")]
    listed = [{"idx": int(name), "name": name, "path": path, "type": _CLASS + kind} for name, path, kind in modules]
    settings = {
        "model_type": "model2vec",
        "architectures": ["StaticModel"],
        "hidden_dim": table.shape[1],
        "normalize": True,
        "max_length": longest - 1,
        "embedding_dtype": "float32",
    }
    with writing(folder / FOLDER) as temporary:
        (temporary / "1_Normalize").mkdir()
        save_file({_TABLE: table}, temporary / _WEIGHTS)
        write_json(temporary / _TOKENS, read_json(folder / _TOKENS) | {"padding": None, "truncation": truncation})
        write_json(temporary / "config.json", settings)
        write_json(temporary / MODULES, listed)
        write_json(temporary / MODEL, vectors.stated(stated))
    difference(folder / FOLDER, static_vectors(folder / FOLDER, texts), expected())


@torch.no_grad()
def token_table(model: Any) -> np.ndarray:
    """Vector float32 [V, D] of each token of a static embedder, not of one length: that of a text is their mean, scaled
    to length 1."""
    ids = torch.arange(model.config.vocab_size)[:, None]
    hidden = families.encode(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})[:, 0]
    dense = model.vectors.width is not None
    table: np.ndarray = (model.get_submodule("dense")(hidden) if dense else hidden).numpy()
    return np.ascontiguousarray(table)


def static_vectors(folder: Path, texts: Sequence[str]) -> np.ndarray:
    """Vectors float32 [n, D] of texts, as model2vec computes them from these files."""
    from tokenizers import Tokenizer

    table = load_file(folder / _WEIGHTS)[_TABLE]
    encoded = Tokenizer.from_file(str(folder / _TOKENS)).encode_batch(list(texts), add_special_tokens=False)
    means = [table[each.ids].mean(0) if each.ids else np.zeros(table.shape[1], np.float32) for each in encoded]
    result: np.ndarray = unit(np.stack(means))
    return result
