"""Turns captured features into the rows that a loss compares: one function for each kind of term on features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from distill.features import Features
from distill.losses.precision import working

NOWHERE = -1e4
"""Relation of a token to padding, so that its probability after the softmax is 0."""


@dataclass(frozen=True)
class LayerFeatures:
    """The features of one layer of a model, and how a term compares them."""

    features: Features
    layer: int
    positions: Tensor
    """Flat positions [N] in the batch, for kinds of terms that compare positions."""
    heads: int
    """Number of heads that queries, keys and values are split into."""
    pooling: str
    """How hidden states are pooled into one vector per text: mean, cls or max."""


def _hidden(side: LayerFeatures) -> list[Tensor]:
    return [side.features.hidden[side.layer].flatten(0, 1)[side.positions]]


def _pooled(side: LayerFeatures) -> list[Tensor]:
    return [pooled(side.features.hidden[side.layer], side.features.mask, side.pooling)]


def _relations(side: LayerFeatures) -> list[Tensor]:
    features = side.features
    vectors = (by_layer[side.layer] for by_layer in (features.queries, features.keys, features.values))
    return [relations(projected, features.mask, side.heads) for projected in vectors]


def _scores(side: LayerFeatures) -> list[Tensor]:
    return score_rows(side.features.scores[side.layer], side.features.mask)


ROWS: dict[str, Callable[[LayerFeatures], list[Tensor]]] = {
    "hidden": _hidden,
    "pooled": _pooled,
    "relations": _relations,
    "scores": _scores,
}
"""Name of a kind in `distill.terms` -> function to the compared rows [N, D], in several tensors where D differs."""


def pooled(hidden: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """Pools hidden states [B, L, H] to [B, H] over the tokens of each text: mean, first (cls) or maximum (max)."""
    if pooling == "cls":
        return hidden[torch.arange(len(hidden)), mask.argmax(1)]
    real = mask[:, :, None].bool()
    if pooling == "max":
        return hidden.masked_fill(~real, -torch.inf).amax(1)
    return (hidden * real).sum(1) / real.sum(1)


def relations(projected: Tensor, mask: Tensor, heads: int) -> Tensor:
    """A A^T / sqrt(d) of queries, keys or values A [B, h, L, d'], first split into `heads` heads: [tokens x heads, L].

    The self-attention relations of Wang et al. 2021, arXiv 2012.15828, equation 5, before their softmax. There are no
    rows for padding, and columns of padding have the value NOWHERE. Computed in float32, also under autocast.
    """
    with torch.autocast(projected.device.type, enabled=False):
        split = working(projected).transpose(1, 2).flatten(2).unflatten(2, (heads, -1)).transpose(1, 2)
        products = split @ split.transpose(-1, -2) / split.shape[-1] ** 0.5
    products = products.masked_fill(~mask[:, None, None].bool(), NOWHERE)
    return products.transpose(1, 2)[mask.bool()].flatten(0, 1)


def score_rows(scores: Tensor, mask: Tensor) -> list[Tensor]:
    """Attention scores [B, h, L, L] as rows [tokens x h, n], one tensor for each text length n in the batch.

    Padding is left out of rows and columns, so that it affects neither a softmax nor a mean over a row.
    """
    lengths = mask.sum(1)
    rows = []
    for length in lengths.unique().tolist():
        texts = lengths == length
        columns = mask[texts].nonzero()[:, 1].unflatten(0, (-1, length))
        token_scores = scores[texts].transpose(1, 2)[mask[texts].bool()].unflatten(0, (-1, length))
        rows.append(token_scores.take_along_dim(columns[:, None, None], -1).flatten(0, 2))
    return rows
