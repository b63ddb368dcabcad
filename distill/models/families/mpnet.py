"""MPNet: Song et al. 2020, arXiv 2004.09297. All layers add one shared bias by relative position to the scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distill.models.families.record import (
    Arguments,
    BertLike,
    Family,
    Layer,
    position_table_after_padding,
    scaled_dot_product,
)

if TYPE_CHECKING:
    from torch import Tensor, nn


def _scores(attention: nn.Module, query: Tensor, key: Tensor, call: Arguments) -> Tensor:
    arguments, named = call
    bias: Tensor = named["position_bias"] if "position_bias" in named else arguments[2]
    return scaled_dot_product(attention, query, key, call) + bias


MPNET = Family(
    name="mpnet",
    encoder="mpnet",
    layers="encoder.layer",
    layer=Layer(
        attention="attention.attn",
        query="attention.attn.q",
        key="attention.attn.k",
        value="attention.attn.v",
        attention_output="attention.attn.o",
        attention_norm="attention.LayerNorm",
        ffn_in="intermediate.dense",
        ffn_out="output.dense",
        ffn_norm="output.LayerNorm",
    ),
    embeddings="embeddings.word_embeddings",
    mlm_head=("lm_head",),
    head="classifier.out_proj",
    max_length=position_table_after_padding,
    padding=1,
    shared_heads=True,
    scores=_scores,
    attention=("eager",),
    recordable=False,
    bert_like=BertLike(mlm_dense="lm_head.dense", mlm_norm="lm_head.layer_norm", mlm_bias="lm_head.bias"),
)
