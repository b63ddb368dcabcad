"""DeBERTa (He et al. 2021, arXiv 2006.03654), v2 and v3 (arXiv 2111.09543): attention to contents and to distances."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from distill.family.bert import LAYER
from distill.family.record import UNBOUNDED, Arguments, Family, position_table, split_heads


def _max_length(config: Any) -> int:
    return position_table(config) if config.position_biased_input else UNBOUNDED


def _qkv_v1(attention: Any, query: Tensor, key: Tensor, value: Tensor, heads: int) -> tuple[Tensor, ...]:
    """One projection [B, L, 3 H]: of each head its queries, keys and values. Biases are apart; keys have none."""
    q, k, v = query.unflatten(-1, (heads, -1)).transpose(1, 2).chunk(3, dim=-1)
    bias = (x.unflatten(-1, (heads, 1, -1)) for x in (attention.q_bias, attention.v_bias))
    return q + next(bias), k, v + next(bias)


def _scores_v1(attention: Any, query: Tensor, key: Tensor, call: Arguments) -> Tensor:
    """Content to content, and where the config asks for it content to position and position to content (equation 4)."""
    parts = 1 + len(attention.pos_att_type)
    scaled = query / (query.shape[-1] * parts) ** 0.5
    scores = scaled @ key.transpose(-1, -2)
    if attention.relative_attention:
        positions, table = _positions(call)
        bias = attention.disentangled_att_bias(scaled, key, positions, attention.pos_dropout(table), parts)
        scores = scores + bias
    if attention.head_logits_proj is not None:
        scores = attention.head_logits_proj(scores.movedim(1, -1)).movedim(-1, 1)
    return scores


def _scores_v2(attention: Any, query: Tensor, key: Tensor, call: Arguments) -> Tensor:
    parts = 1 + ("c2p" in attention.pos_att_type) + ("p2c" in attention.pos_att_type)
    scores = query @ key.transpose(-1, -2) / (query.shape[-1] * parts) ** 0.5
    if attention.relative_attention:
        positions, table = _positions(call)
        bias = attention.disentangled_attention_bias(
            query.flatten(0, 1), key.flatten(0, 1), positions, attention.pos_dropout(table), parts
        )
        scores = scores + bias.unflatten(0, query.shape[:2])
    return scores


def _positions(call: Arguments) -> tuple[Tensor, Tensor]:
    return call[1]["relative_pos"], call[1]["rel_embeddings"]


DEBERTA = Family(
    name="deberta",
    encoder="deberta",
    layers="encoder.layer",
    layer=replace(
        LAYER,
        query="attention.self.in_proj",
        key="attention.self.in_proj",
        value="attention.self.in_proj",
    ),
    embeddings="embeddings.word_embeddings",
    mlm_head=("cls",),
    pooler="pooler",
    token_types=True,
    max_length=_max_length,
    qkv=_qkv_v1,
    interleaved=True,
    unprunable={"talking_head": False},
    bf16=False,  # its biases of queries are float32, and so is then the mask it writes into bf16 scores
    scores=_scores_v1,
    attention=("eager",),
    published={
        "relative_attention": True,
        "pos_att_type": ["c2p", "p2c"],
        "position_biased_input": False,
        "type_vocab_size": 0,
    },
)

DEBERTA_V2 = replace(
    DEBERTA,
    name="deberta-v2",
    layer=replace(
        LAYER,
        query="attention.self.query_proj",
        key="attention.self.key_proj",
        value="attention.self.value_proj",
    ),
    qkv=split_heads,
    interleaved=False,
    unprunable={"conv_kernel_size": 0},
    bf16=True,
    scores=_scores_v2,
    published={**DEBERTA.published, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True},
)
