"""Encoders with rotary positions (Su et al. 2021, arXiv 2104.09864): EuroBERT, UltraBERT, NomicBERT, GTE, Jina v3.

Their layers rotate queries and keys by position, head by head, so that heads keep their size. The published files of
NomicBERT, GTE and Jina v3 have other names than transformers' models, which transformers translates.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distill.models.families.record import (
    ANSWERS,
    CHOICES,
    Arguments,
    Family,
    Layer,
    position_table,
    scaled_dot_product,
)

if TYPE_CHECKING:
    from torch import Tensor, nn


def rotated_scores(attention: nn.Module, query: Tensor, key: Tensor, call: Arguments) -> Tensor:
    """Scaled dot products [B, heads, L, L] of rotated queries and keys [B, heads, L, d]: equation 34."""
    cos, sin = (table.unsqueeze(1) for table in call[1]["position_embeddings"])
    q, k = (x * cos + _rotate_half(x) * sin for x in (query, key))
    return scaled_dot_product(attention, q, k, call)


def _rotate_half(x: Tensor) -> Tensor:
    import torch

    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def _grouped(attention: Any, query: Tensor, key: Tensor, value: Tensor, heads: int) -> tuple[Tensor, ...]:
    """Queries, keys and values [B, heads, L, d]. Where heads share keys and values in groups (Ainslie et al. 2023,
    arXiv 2305.13245), these are repeated."""
    split = [x.unflatten(-1, (-1, attention.head_dim)).transpose(1, 2) for x in (query, key, value)]
    return tuple(x.repeat_interleave(heads // x.shape[1], dim=1) for x in split)


_LAYER = Layer(
    attention="self_attn",
    query="self_attn.q_proj",
    key="self_attn.k_proj",
    value="self_attn.v_proj",
    attention_output="self_attn.o_proj",
    attention_norm="input_layernorm",
    ffn_in="mlp.up_proj",
    ffn_gate="mlp.gate_proj",
    ffn_out="mlp.down_proj",
    ffn_norm="post_attention_layernorm",
)
_AFTER = replace(_LAYER, attention_norm="post_attention_layernorm", ffn_norm="post_mlp_layernorm")

EUROBERT = Family(
    name="eurobert",
    encoder="model",
    layers="layers",
    layer=_LAYER,
    embeddings="embed_tokens",
    mlm_head=("lm_head",),
    qkv=_grouped,
    scores=rotated_scores,
    rotary=True,
    without=(CHOICES, ANSWERS),
    unprunable={"num_key_value_heads": "num_attention_heads"},
)
"""Boizard et al. 2025, arXiv 2503.05500."""

ULTRABERT = replace(
    EUROBERT,
    name="ultrabert",
    mlm_head=("head", "decoder"),
    without=(CHOICES,),
    outer="ultrabert.",
)
"""dmis-lab/UltraBERT-150M: EuroBERT with local and global layers, and another language-model head. Its published names
are changed one by one, also while it is quantized."""


def _stated_length(config: Any) -> int:
    """Maximum length: rotary positions have no table, and published models state the longer one as n_positions.

    Where their own code scales the rotary positions of longer texts, which transformers does not, it is the length of
    the training."""
    if getattr(config, "rotary_scaling_factor", None):
        return int(getattr(config, "max_trained_positions", None) or position_table(config))
    return max(position_table(config), int(getattr(config, "n_positions", None) or 0))


NOMIC_BERT = Family(
    name="nomic_bert",
    max_length=_stated_length,
    encoder="nomic_bert",
    layers="layers",
    layer=_AFTER,
    embeddings="embeddings.word_embeddings",
    mlm_head=("cls",),
    pooler="nomic_bert.pooler",
    token_types=True,
    scores=rotated_scores,
    rotary=True,
    without=(CHOICES, ANSWERS),
    translated=True,
)
"""Nussbaum et al. 2024, arXiv 2402.01613. Norms follow each block."""

GTE = replace(
    NOMIC_BERT,
    name="gte",
    encoder="gte",
    mlm_head=("lm_head",),
    pooler="gte.pooler",
    outer="new.",
    published={"type_vocab_size": 1},
)
"""Zhang et al. 2024, arXiv 2407.19669."""

JINA_V3 = Family(
    name="jina_embeddings_v3",
    encoder="roberta",
    layers="layers",
    layer=replace(_AFTER, ffn_in="mlp.fc1", ffn_gate=None, ffn_out="mlp.fc2"),
    embeddings="embeddings.word_embeddings",
    mlm_head=("lm_head",),
    head="classifier.out_proj",
    token_types=True,
    scores=rotated_scores,
    rotary=True,
    without=(CHOICES,),
    translated=True,
    published={"type_vocab_size": 1},
)
"""Sturua et al. 2024, arXiv 2409.10173, in the files of jinaai/jina-embeddings-v3-hf. The adapters of its tasks are
not used."""
