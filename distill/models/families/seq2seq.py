"""BART (Lewis et al. 2020, arXiv 1910.13461) and T5 (Raffel et al. 2020, arXiv 1910.10683), as teachers on tasks."""

from __future__ import annotations

from distill.models.families.record import ANSWERS, CHOICES, TOKENS, VECTORS, Family, no_table

BART = Family(
    name="bart",
    encoder="model.encoder",
    layers="layers",
    embeddings="embed_tokens",
    head="classification_head.out_proj",
    recordable=False,
    without=(TOKENS, CHOICES, ANSWERS, VECTORS),
)

T5 = Family(
    name="t5",
    encoder="transformer.encoder",
    layers="block",
    embeddings="embed_tokens",
    head="classification_head.out_proj",
    recordable=False,
    max_length=no_table,
    onnx=False,
    without=(CHOICES, ANSWERS, VECTORS),
)
