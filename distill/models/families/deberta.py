"""DeBERTa (He et al. 2021, arXiv 2006.03654), v2 and v3 (arXiv 2111.09543): disentangled attention."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distill.models.families.bert import LAYER
from distill.models.families.record import CHOICES, UNBOUNDED, Arguments, Family, position_table, split_heads

if TYPE_CHECKING:
    from torch import Tensor


def _max_length(config: Any) -> int:
    return position_table(config) if config.position_biased_input else UNBOUNDED


def _qkv_v1(attention: Any, query: Tensor, key: Tensor, value: Tensor, heads: int) -> tuple[Tensor, ...]:
    """Splits the fused projection [B, L, 3 H], head by head query, key, value; biases are separate, keys have none."""
    q, k, v = query.unflatten(-1, (heads, -1)).transpose(1, 2).chunk(3, dim=-1)
    bias = (x.unflatten(-1, (heads, 1, -1)) for x in (attention.q_bias, attention.v_bias))
    return q + next(bias), k, v + next(bias)


def _scores_v1(attention: Any, query: Tensor, key: Tensor, call: Arguments) -> Tensor:
    """Content-to-content scores, plus content-to-position and position-to-content if in the config (equation 4)."""
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
    """The scores of `_scores_v1` as v2 and v3 compute them, in the precision of queries and keys [B, heads, L, d]."""
    to_position, to_content = (part in attention.pos_att_type for part in ("c2p", "p2c"))
    scores = query @ key.transpose(-1, -2)
    if attention.relative_attention:
        positions, table = _positions(call)
        span = attention.pos_ebd_size
        table = attention.pos_dropout(table)[: 2 * span]
        keys, queries = ("key_proj", "query_proj") if attention.share_att_key else ("pos_key_proj", "pos_query_proj")
        if to_position:
            scores = scores + _by_distance(query, getattr(attention, keys), table, span + positions)
        if to_content:
            scores = scores + _by_distance(key, getattr(attention, queries), table, span - positions).transpose(-1, -2)
    return scores / (query.shape[-1] * (1 + to_position + to_content)) ** 0.5


def _by_distance(content: Tensor, project: Any, table: Tensor, rows: Tensor) -> Tensor:
    """Dot products [B, heads, L, L] of contents [B, heads, L, d] with projected embeddings of relative distances.

    `table` [D, H] holds the distance embeddings; `rows` [1, L, L] is the row of each pair of positions.
    """
    projected = project(table.to(project.weight.dtype)).unflatten(-1, (content.shape[1], -1)).transpose(0, 1)
    products = content @ projected.to(content.dtype).transpose(-1, -2)
    return products.gather(-1, rows.long().clamp(0, len(table) - 1).unsqueeze(1).expand(*products.shape[:3], -1))


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
    bf16=False,  # under autocast its mask is float32 and its scores bf16: the mask's minimum value overflows in bf16
    scores=_scores_v1,
    attention=("eager",),
    without=(CHOICES,),
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
    recordable=False,
    without=(),
    scores=_scores_v2,
    published={**DEBERTA.published, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True},
)
