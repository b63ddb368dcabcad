"""RoBERTa: Liu et al. 2019, arXiv 1907.11692."""

from __future__ import annotations

from distill.family.record import Family

ROBERTA = Family(
    name="roberta",
    encoder="roberta",
    layers="encoder.layer",
    mlm_head=("lm_head",),
    token_types=False,
    position_offset=2,  # positions are counted from padding_idx + 1
)
