"""XLNet: Yang et al. 2019, arXiv 1906.08237, as a teacher on tasks. Its classifier uses the last position."""

from __future__ import annotations

from distill.models.families.record import ANSWERS, VECTORS, Family, no_table

XLNET = Family(
    name="xlnet",
    encoder="transformer",
    layers="layer",
    embeddings="word_embedding",
    head="logits_proj",
    token_types=True,
    max_length=no_table,
    attention=("eager",),
    pads_left=True,
    without=(ANSWERS, VECTORS),
    onnx=False,
    recordable=False,
    unused=("transformer.mask_emb",),
)
