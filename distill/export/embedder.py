"""A sentence embedder as sentence-transformers loads it, and the vectors that it must give."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from distill import family
from distill.checkpoint import writing
from distill.export.huggingface import found
from distill.rows import pooled
from distill.teacher import POOLING, load_mlm

PROJECTION = "projection"
"""Folder, in that of a model on a corpus, of the map from its pooled vectors to the teacher's, where it is narrower."""


@dataclass(frozen=True)
class Embedder:
    """What is done to the hidden states of a text: they are pooled (mean, cls or max), mapped, and scaled to length 1,
    for only directions were learnt.
    """

    folder: Path
    """Language model and tokenizer."""
    pooling: str
    max_length: int
    """Most tokens of a text that are read."""

    @property
    def projection(self) -> torch.Tensor | None:
        """Weight [D, H], or None where a model's own vectors [H] are the teacher's."""
        file = self.folder / PROJECTION / "model.safetensors"
        return load_file(file)["linear.weight"] if file.is_file() else None


@torch.no_grad()
def vectors(embedder: Embedder, tokenizer: Any, texts: Sequence[str]) -> np.ndarray:
    """Float32 [n, D] of length 1, pooled and mapped as in training, one text at a time."""
    model, _ = load_mlm(embedder.folder)
    rows, projection = [], embedder.projection
    for text in texts:
        batch = tokenizer(text, truncation=True, max_length=embedder.max_length, return_tensors="pt")
        vector = pooled(family.encode(model, dict(batch)), batch["attention_mask"], embedder.pooling)
        vector = vector if projection is None else vector @ projection.T
        rows.append(torch.nn.functional.normalize(vector))
    return torch.cat(rows).numpy()


def export_embedder(embedder: Embedder, out: Path, card: str) -> None:
    """Write the new folder `out`: encoder without a language-model head, tokenizer, and how vectors are made of it.

    In the layout that sentence-transformers has read since its version 2. `card` is its README.md. All of it is there
    at once, or nothing.
    """
    source, projection = embedder.folder, embedder.projection
    model, _ = load_mlm(source)
    encoder: Any = family.encoder(model)
    # A pooler, which language models lack and no vector needs, would be drawn anew each time it is loaded.
    without = {"add_pooling_layer": False} if "add_pooling_layer" in signature(type(encoder)).parameters else {}
    width = family.width(model)
    modules: list[tuple[str, str, dict[str, Any] | None]] = [
        ("", "Transformer", None),
        ("1_Pooling", "Pooling", {"word_embedding_dimension": width} | _modes(embedder.pooling)),
    ]
    if projection is not None:
        described: dict[str, Any] = {"in_features": width, "out_features": len(projection), "bias": False}
        described |= {"activation_function": "torch.nn.modules.linear.Identity"}
        modules.append((f"{len(modules)}_Dense", "Dense", described))
    modules.append((f"{len(modules)}_Normalize", "Normalize", None))
    with writing(out) as temporary:
        encoder.save_pretrained(temporary)
        for path in found(source):
            if path.suffix != ".safetensors" and path.name != "config.json":
                shutil.copy2(path, temporary)
        for name, _, settings in modules[1:]:
            (temporary / name).mkdir()
            if settings is not None:
                _write(temporary / name / "config.json", settings)
        if projection is not None:
            shutil.copy2(source / PROJECTION / "model.safetensors", temporary / modules[2][0])
        read = {"max_seq_length": embedder.max_length, "do_lower_case": False, "model_args": without}
        _write(temporary / "sentence_bert_config.json", read)
        kinds = [(name, f"sentence_transformers.models.{kind}") for name, kind, _ in modules]
        listed = [{"idx": i, "name": str(i), "path": name, "type": kind} for i, (name, kind) in enumerate(kinds)]
        _write(temporary / "modules.json", listed)
        (temporary / "README.md").write_text(card, encoding="utf-8")


def _modes(pooling: str) -> dict[str, bool]:
    return {key: how == pooling for how, key in POOLING.items()} | {"pooling_mode_mean_sqrt_len_tokens": False}


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
