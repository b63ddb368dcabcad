"""ELECTRA: Clark et al. 2020, arXiv 2003.10555. Only generators have a pretrained language-model head, and
only discriminators one that detects replaced tokens."""

from __future__ import annotations

from distill.models.families.bert import LAYER
from distill.models.families.record import BertLike, Family

ELECTRA = Family(
    name="electra",
    encoder="electra",
    layers="encoder.layer",
    layer=LAYER,
    embeddings="embeddings.word_embeddings",
    mlm_head=("generator_predictions", "generator_lm_head"),
    rtd_head="discriminator_predictions",
    head="classifier.out_proj",
    token_types=True,
    bert_like=BertLike(
        mlm_dense="generator_predictions.dense",
        mlm_norm="generator_predictions.LayerNorm",
        mlm_bias="generator_lm_head.bias",
        projection="electra.embeddings_project",
    ),
)
