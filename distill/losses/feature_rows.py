"""The rows of tensors that terms compare: one function for each kind of term on hidden states or attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from distill.config.feature_kinds import KEYS, QUERIES, RELATIONS, VALUES, FeatureKind
from distill.models.families.embedding import pooled
from distill.models.hooks import Features
from distill.runtime.precision import working

MASKED = -1e4
"""Relation of a token to padding: its probability after a softmax is 0."""


@dataclass(frozen=True)
class Part:
    """The features of one layer of a model, and how a term splits or pools them."""

    features: Features
    layer: int
    positions: Tensor
    """Flat positions [N] in the batch whose hidden states are compared."""
    heads: int
    """Number of relation heads that queries, keys and values are split into."""
    pooling: str
    """How the hidden states of a text become one vector, as for `pooled`."""
    every: bool = False
    """Whether there are rows for padding too, so that their number does not depend on it. Those of attention scores
    never are."""


def _hidden(part: Part) -> list[Tensor]:
    return [part.features.hidden[part.layer].flatten(0, 1).index_select(0, part.positions)]


def _pooled(part: Part) -> list[Tensor]:
    return [pooled(part.features.hidden[part.layer], part.features.mask, part.pooling)]


def _first(part: Part) -> list[Tensor]:
    return [pooled(part.features.hidden[part.layer], part.features.mask, "cls")]


def _relations(kind: FeatureKind, part: Part) -> list[Tensor]:
    projections = (getattr(part.features, name)[part.layer] for name in kind.fields)
    return [relations(projected, part.features.mask, part.heads, every=part.every) for projected in projections]


def _scores(part: Part) -> list[Tensor]:
    return score_rows(part.features.scores[part.layer], part.features.mask)


ROWS: dict[str, Callable[[Part], list[Tensor]]] = {
    "hidden": _hidden,
    "first": _first,
    "pooled": _pooled,
    **{kind.name: partial(_relations, kind) for kind in (RELATIONS, QUERIES, KEYS, VALUES)},
    "scores": _scores,
}
"""Name of a kind in `distill.config.feature_kinds` -> function that returns the rows [N, D] of a part, one tensor for
each width D."""


def margins(outputs: Tensor, pairs: Tensor) -> Tensor:
    """Differences [P, C] of outputs [B, C] between the first and the second row of each pair [P, 2]."""
    first, second = working(outputs)[pairs].unbind(1)
    return first - second


def relations(projected: Tensor, mask: Tensor, heads: int, *, every: bool = False) -> Tensor:
    """A A^T / sqrt(d) of queries, keys or values A [B, h, L, d'], split into `heads` heads of width d.

    The self-attention relations of Wang et al. 2021, arXiv 2012.15828, equation 5, before their softmax. Returns
    [tokens x heads, L] without rows for padding, unless `every` is set; columns of padding are `MASKED`. Computed in
    float32, also under autocast.
    """
    with torch.autocast(projected.device.type, enabled=False):
        split = working(projected).transpose(1, 2).flatten(2).unflatten(2, (heads, -1)).transpose(1, 2)
        products = split @ split.transpose(-1, -2) / split.shape[-1] ** 0.5
    products = products.masked_fill(~mask[:, None, None].bool(), MASKED)
    rows = products.transpose(1, 2)
    return rows.flatten(0, 2) if every else rows[mask.bool()].flatten(0, 1)


def score_rows(scores: Tensor, mask: Tensor) -> list[Tensor]:
    """Attention scores [B, h, L, L] without padding: a tensor [tokens x h, n] for each text length n in the batch.

    Without padding in the rows, neither a softmax nor a mean over a row counts it.
    """
    lengths = mask.sum(1)
    rows = []
    for length in lengths.unique().tolist():
        texts = lengths == length
        columns = mask[texts].nonzero()[:, 1].unflatten(0, (-1, length))
        of_tokens = scores[texts].transpose(1, 2)[mask[texts].bool()].unflatten(0, (-1, length))
        rows.append(of_tokens.take_along_dim(columns[:, None, None], -1).flatten(0, 2))
    return rows
