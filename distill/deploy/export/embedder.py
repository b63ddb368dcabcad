"""A sentence embedder in the layout of sentence-transformers, and the embeddings that it must output."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from distill.deploy.export.huggingface import model_files
from distill.models import families
from distill.models.families import earlier
from distill.models.families.embedding import encoder_arguments, pooled
from distill.models.families.vectors import DENSE_FOLDER, Vectors, finish, write
from distill.models.teacher import load_mlm
from distill.runtime.storage.atomic import writing

PROJECTION = "projection"
"""Subfolder, in a student's checkpoint, of the projection from its pooled vectors to the teacher's width."""


@dataclass(frozen=True)
class Embedder:
    """A language model whose hidden states are pooled, projected and scaled to length 1.

    The length is not used, because the loss compares directions only.
    """

    folder: Path
    """Language model and tokenizer."""
    pooling: str
    max_length: int
    """Longer texts are truncated to this number of tokens."""
    given: Vectors = field(default_factory=Vectors)
    """Further settings of the teacher: prompts, the similarity, and whether texts are lower-cased."""

    @property
    def projection(self) -> torch.Tensor | None:
        """Weight [D, H], or None if the model has the width of the teacher."""
        file = self.folder / PROJECTION / "model.safetensors"
        return load_file(file)["linear.weight"] if file.is_file() else None


@torch.no_grad()
def vectors(embedder: Embedder, tokenizer: Any, texts: Sequence[str]) -> np.ndarray:
    """Embeddings float32 [n, D] of length 1, pooled and projected as in training, one text at a time."""
    model, _ = load_mlm(embedder.folder)
    rows, projection = [], embedder.projection
    for text in texts:
        batch = tokenizer(text, truncation=True, max_length=embedder.max_length, return_tensors="pt")
        vector = pooled(families.encode(model, dict(batch)), batch["attention_mask"], embedder.pooling)
        vector = vector if projection is None else vector @ projection.T
        rows.append(torch.nn.functional.normalize(vector))
    return torch.cat(rows).numpy()


def export_embedder(embedder: Embedder, out: Path, card: str) -> None:
    """Write the new folder `out` atomically: encoder without language-model head, tokenizer, pooling and projection.

    sentence-transformers loads this layout since its version 2. `card` is the text of README.md.
    """
    source, projection = embedder.folder, embedder.projection
    model, _ = load_mlm(source)
    encoder: Any = families.encoder(model)
    width = None if projection is None else len(projection)
    modules = Vectors(embedder.pooling, width, lower=embedder.given.lower)
    with writing(out) as temporary:
        encoder.save_pretrained(temporary)
        earlier.complete(temporary)
        for path in model_files(source):
            if path.suffix != ".safetensors" and path.name != "config.json":
                shutil.copy2(path, temporary)
        write(temporary, modules, families.width(model), encoder_arguments(encoder.config))
        finish(temporary, embedder.max_length, embedder.given)
        if projection is not None:
            shutil.copy2(source / PROJECTION / "model.safetensors", temporary / DENSE_FOLDER)
        (temporary / "README.md").write_text(card, encoding="utf-8")
