"""ALBERT: Lan et al. 2020, arXiv 1909.11942. One shared layer is applied several times; embeddings are narrow."""

from __future__ import annotations

from distill.models.families.record import BertLike, Family, Layer

ALBERT = Family(
    name="albert",
    encoder="albert",
    layers="encoder.albert_layer_groups",
    layer=Layer(
        attention="albert_layers.0.attention",
        query="albert_layers.0.attention.query",
        key="albert_layers.0.attention.key",
        value="albert_layers.0.attention.value",
        attention_output="albert_layers.0.attention.dense",
        attention_norm="albert_layers.0.attention.LayerNorm",
        ffn_in="albert_layers.0.ffn",
        ffn_out="albert_layers.0.ffn_output",
        ffn_norm="albert_layers.0.full_layer_layer_norm",
    ),
    embeddings="embeddings.word_embeddings",
    mlm_head=("predictions",),
    pooler="albert.pooler",
    segment_head=("albert.pooler", "sop_classifier.classifier"),
    token_types=True,
    shared_layers=True,
    unprunable={"num_hidden_groups": 1},
    bert_like=BertLike(
        mlm_dense="predictions.dense",
        mlm_norm="predictions.LayerNorm",
        mlm_bias="predictions.bias",
        projection="albert.encoder.embedding_hidden_mapping_in",
        always_projects=True,
    ),
)
