"""BERT: Devlin et al. 2019, arXiv 1810.04805. SpanBERT and MiniLM have this type too; ERNIE differs in names."""

from __future__ import annotations

from dataclasses import replace

from distill.models.families.record import BertLike, Family, Layer

LAYER = Layer(
    attention="attention.self",
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    attention_output="attention.output.dense",
    attention_norm="attention.output.LayerNorm",
    ffn_in="intermediate.dense",
    ffn_out="output.dense",
    ffn_norm="output.LayerNorm",
)

BERT = Family(
    name="bert",
    encoder="bert",
    layers="encoder.layer",
    layer=LAYER,
    embeddings="embeddings.word_embeddings",
    mlm_head=("cls",),
    pooler="bert.pooler",
    segment_head=("bert.pooler.dense", "cls.seq_relationship"),
    token_types=True,
    bert_like=BertLike(
        mlm_dense="cls.predictions.transform.dense",
        mlm_norm="cls.predictions.transform.LayerNorm",
        mlm_bias="cls.predictions.bias",
    ),
)

ERNIE = replace(
    BERT,
    name="ernie",
    encoder="ernie",
    pooler="ernie.pooler",
    segment_head=("ernie.pooler.dense", "cls.seq_relationship"),
)
