"""RoBERTa (Liu et al. 2019, arXiv 1907.11692), and XLM-R, CamemBERT and data2vec, which have the same modules."""

from __future__ import annotations

from dataclasses import replace

from distill.models.families.bert import LAYER
from distill.models.families.record import BertLike, Family, position_table_after_padding

ROBERTA = Family(
    name="roberta",
    encoder="roberta",
    layers="encoder.layer",
    layer=LAYER,
    embeddings="embeddings.word_embeddings",
    mlm_head=("lm_head",),
    head="classifier.out_proj",
    token_types=True,
    max_length=position_table_after_padding,
    bert_like=BertLike(mlm_dense="lm_head.dense", mlm_norm="lm_head.layer_norm", mlm_bias="lm_head.bias"),
    published={"type_vocab_size": 1},
)

XLM_ROBERTA = replace(ROBERTA, name="xlm-roberta")
CAMEMBERT = replace(ROBERTA, name="camembert")
DATA2VEC = replace(ROBERTA, name="data2vec-text", encoder="data2vec_text")
