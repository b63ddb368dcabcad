"""ELECTRA: Clark et al. 2020, arXiv 2003.10555. Only the generator comes with a language-model head."""

from __future__ import annotations

from distill.family.bert import LAYER
from distill.family.record import BertShape, Family

ELECTRA = Family(
    name="electra",
    encoder="electra",
    layers="encoder.layer",
    layer=LAYER,
    embeddings="embeddings.word_embeddings",
    mlm_head=("generator_predictions", "generator_lm_head"),
    head="classifier.out_proj",
    token_types=True,
    bert_shape=BertShape(
        mlm_dense="generator_predictions.dense",
        mlm_norm="generator_predictions.LayerNorm",
        mlm_bias="generator_lm_head.bias",
        projection="electra.embeddings_project",
    ),
)
