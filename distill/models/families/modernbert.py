"""ModernBERT (Warner et al. 2024, arXiv 2412.13663) and Ettin: rotary positions, local and global layers, gated FFN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distill.models.families.record import Family, Layer
from distill.models.families.rotary import rotated_scores

if TYPE_CHECKING:
    from torch import Tensor, nn


def _qkv(attention: nn.Module, query: Tensor, key: Tensor, value: Tensor, heads: int) -> tuple[Tensor, ...]:
    """Splits the fused projection [B, L, 3 H]: all queries, then all keys, then all values; before the rotation."""
    return tuple(query.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0))


MODERNBERT = Family(
    name="modernbert",
    encoder="model",
    layers="layers",
    layer=Layer(
        attention="attn",
        query="attn.Wqkv",
        key="attn.Wqkv",
        value="attn.Wqkv",
        attention_output="attn.Wo",
        attention_norm="attn_norm",
        ffn_in="mlp.Wi",
        ffn_out="mlp.Wo",
        ffn_norm="mlp_norm",
    ),
    embeddings="embeddings.tok_embeddings",
    mlm_head=("head", "decoder"),
    qkv=_qkv,
    scores=rotated_scores,
    rotary=True,
    first_layer=True,  # layer 0 has no norm before its attention
    settings={"hidden_act": "hidden_activation"},
)
