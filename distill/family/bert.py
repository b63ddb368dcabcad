"""BERT: Devlin et al. 2019, arXiv 1810.04805."""

from __future__ import annotations

from distill.family.record import Family

BERT = Family(
    name="bert",
    encoder="bert",
    layers="encoder.layer",
    mlm_head=("cls",),
    token_types=True,
    position_offset=0,
)
