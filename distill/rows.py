"""What terms compare, as rows of tensors: one function for each kind of term that looks inside of models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from distill.features import Features
from distill.losses.precision import working

NOWHERE = -1e4
"""Relation of a token to padding: its probability after a softmax is 0."""


@dataclass(frozen=True)
class Part:
    """The part of a model that a term compares: one layer of its features."""

    features: Features
    layer: int
    positions: Tensor
    """Flat positions [N] of the batch, for kinds that compare positions."""
    heads: int
    """Heads that queries, keys and values are split into."""
    pooling: str
    """How hidden states become one vector a text: mean, cls or max."""


def _hidden(part: Part) -> list[Tensor]:
    return [part.features.hidden[part.layer].flatten(0, 1)[part.positions]]


def _pooled(part: Part) -> list[Tensor]:
    return [pooled(part.features.hidden[part.layer], part.features.mask, part.pooling)]


def _relations(part: Part) -> list[Tensor]:
    found = part.features
    projected = (each[part.layer] for each in (found.queries, found.keys, found.values))
    return [relations(one, found.mask, part.heads) for one in projected]


def _scores(part: Part) -> list[Tensor]:
    return score_rows(part.features.scores[part.layer], part.features.mask)


ROWS: dict[str, Callable[[Part], list[Tensor]]] = {
    "hidden": _hidden,
    "pooled": _pooled,
    "relations": _relations,
    "scores": _scores,
}
"""Name of a kind of `distill.terms` -> the rows [N, D] of a part, in one tensor or several of different widths D."""


def pooled(hidden: Tensor, mask: Tensor, how: str) -> Tensor:
    """One vector [B, H] of the hidden states [B, L, H] of each text: their mean, first or largest."""
    if how == "cls":
        return hidden[torch.arange(len(hidden)), mask.argmax(1)]
    real = mask[:, :, None].bool()
    if how == "max":
        return hidden.masked_fill(~real, -torch.inf).amax(1)
    return (hidden * real).sum(1) / real.sum(1)


def relations(projected: Tensor, mask: Tensor, heads: int) -> Tensor:
    """A A^T / sqrt(d) of queries, keys or values A [B, h, L, d'], split anew into `heads`: [tokens x heads, L].

    The self-attention relations of Wang et al. 2021, arXiv 2012.15828, equation 5, before their softmax. Padding is
    left out of the rows, and out of the softmax. Computed in float32, also under autocast.
    """
    with torch.autocast(projected.device.type, enabled=False):
        split = working(projected).transpose(1, 2).flatten(2).unflatten(2, (heads, -1)).transpose(1, 2)
        products = split @ split.transpose(-1, -2) / split.shape[-1] ** 0.5
    products = products.masked_fill(~mask[:, None, None].bool(), NOWHERE)
    return products.transpose(1, 2)[mask.bool()].flatten(0, 1)


def score_rows(scores: Tensor, mask: Tensor) -> list[Tensor]:
    """Attention scores [B, h, L, L] as rows [tokens x h, n], for each number n of tokens that a text of the batch has.

    Padding is in no row, so that it counts neither in a softmax nor in a mean over a row.
    """
    lengths = mask.sum(1)
    rows = []
    for length in lengths.unique().tolist():
        texts = lengths == length
        places = mask[texts].nonzero()[:, 1].unflatten(0, (-1, length))
        of_tokens = scores[texts].transpose(1, 2)[mask[texts].bool()].unflatten(0, (-1, length))
        rows.append(of_tokens.take_along_dim(places[:, None, None], -1).flatten(0, 2))
    return rows
