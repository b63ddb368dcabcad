"""Which layers and channels a model can best do without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from distill import family
from distill.compress.importance import Batch, Importance, Loss
from distill.compress.prune import Kept, everything, pruned


@torch.no_grad()
def mean_loss(model: Any, batches: Sequence[Batch], loss: Loss) -> float:
    """Mean over rows of the loss of each."""
    values = torch.cat([loss(model, batch).float() for batch in batches])
    return values.mean().item()


def by_loss(model: Any, batches: Sequence[Batch], loss: Loss, fewest: int) -> dict[int, tuple[list[int], float]]:
    """Number of layers -> the layers that are kept, and the mean loss with these alone, from all down to `fewest`.

    One layer after the other goes: each time the one without which the loss on `batches` is least. Sajjad et al. 2023,
    arXiv 2004.03844, drop layers before fine-tuning, by position; here what is lost is measured.
    Costs about half the square of the depth in passes over `batches`.
    """
    kept = list(range(family.depth(model)))
    found = {len(kept): (kept, mean_loss(model, batches, loss))}
    fixed = 1 if family.family_of(model).first_layer else 0
    while len(kept) > max(fewest, 1):
        tried = []
        # Turns of a shared layer are all alike: any of them may go.
        places = [len(kept) - 1] if family.family_of(model).shared_layers else range(fixed, len(kept))
        for place in places:
            rest = kept[:place] + kept[place + 1 :]
            tried.append((mean_loss(pruned(model, everything(model, rest)), batches, loss), rest))
        value, kept = min(tried, key=lambda pair: pair[0])
        found[len(kept)] = (kept, value)
    return found


def most_important(model: Any, layers: Sequence[int], scores: Importance, hidden: int, ffn: int) -> Kept:
    """The `hidden` channels, the heads that fill them and the `ffn` channels with the highest scores, of these layers.

    Heads and FFN channels are chosen in each layer by itself, but where layers share them.
    """
    record, size = family.family_of(model), family.width(model) // family.heads(model)
    heads, inner = scores.heads[list(layers)], scores.ffn[list(layers)]
    if record.shared_layers or record.shared_heads:
        heads = heads.sum(0, keepdim=True).expand_as(heads)
    if record.shared_layers:
        inner = inner.sum(0, keepdim=True).expand_as(inner)
    return Kept(
        list(layers),
        _top(scores.hidden, hidden),
        [_top(row, hidden // size) for row in heads],
        [_top(row, ffn) for row in inner],
    )


def _top(scores: Tensor, count: int) -> Tensor:
    """Numbers of the `count` highest scores, ascending; of equal ones the first."""
    return scores.sort(descending=True, stable=True).indices[:count].sort().values
