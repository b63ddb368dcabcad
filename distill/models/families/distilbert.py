"""DistilBERT: Sanh et al. 2019, arXiv 1910.01108. No pooler, no token types."""

from __future__ import annotations

from distill.models.families.record import BertLike, Family, Layer

DISTILBERT = Family(
    name="distilbert",
    encoder="distilbert",
    layers="transformer.layer",
    layer=Layer(
        attention="attention",
        query="attention.q_lin",
        key="attention.k_lin",
        value="attention.v_lin",
        attention_output="attention.out_lin",
        attention_norm="sa_layer_norm",
        ffn_in="ffn.lin1",
        ffn_out="ffn.lin2",
        ffn_norm="output_layer_norm",
    ),
    embeddings="embeddings.word_embeddings",
    mlm_head=("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),
    bert_like=BertLike(mlm_dense="vocab_transform", mlm_norm="vocab_layer_norm", mlm_bias="vocab_projector.bias"),
    settings={
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
    },
)
