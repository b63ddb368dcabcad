"""DistilBERT: Sanh et al. 2019, arXiv 1910.01108. No pooler, no token types."""

from __future__ import annotations

from distill.family.record import Family

DISTILBERT = Family(
    name="distilbert",
    encoder="distilbert",
    layers="transformer.layer",
    mlm_head=("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),
    token_types=False,
    position_offset=0,
)
