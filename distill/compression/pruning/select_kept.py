"""Chooses the layers, heads and channels to keep when a model is pruned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from distill.compression.pruning.importance import Batch, Importance, Loss
from distill.compression.pruning.masks import Skips, skipping
from distill.compression.pruning.prune import Kept
from distill.models import families


@torch.no_grad()
def mean_loss(model: Any, batches: Sequence[Batch], loss: Loss) -> float:
    """Mean loss over all rows of the batches for which `loss` returns one, which are those with a label."""
    return mean_of(torch.cat([loss(model, batch).float() for batch in batches])).item()


def mean_of(values: Tensor) -> Tensor:
    """Mean [] of the losses of rows [R]; 0 without rows, as where no document of a batch is relevant for its query."""
    return values.sum() / max(len(values), 1)


def by_loss(model: Any, batches: Sequence[Batch], loss: Loss, fewest: int) -> dict[int, tuple[list[int], float]]:
    """Number of layers -> (the layers to keep, the mean loss with only these), from all layers down to `fewest`.

    Greedy: removes one layer at a time, the one whose removal gives the lowest loss on `batches`. After Sajjad et al.
    2023, arXiv 2004.03844. Deviation: they drop layers by position, before fine-tuning.
    Takes about depth^3 / 6 passes of `batches` through a layer.
    """
    record, everyone = families.family_of(model), range(families.depth(model))
    kept = list(everyone)
    by_count = {len(kept): (kept, mean_loss(model, batches, loss))}
    while len(kept) > max(fewest, 1):
        # With a shared layer every choice gives the same model.
        removable = kept[-1:] if record.shared_layers else kept[1 if record.first_layer else 0 :]
        losses = without_each(model, batches, loss, kept, removable)
        gone = min(removable, key=losses.__getitem__)
        kept = [number for number in kept if number != gone]
        by_count[len(kept)] = (kept, losses[gone])
    return by_count


@torch.no_grad()
def without_each(
    model: Any, batches: Sequence[Batch], loss: Loss, kept: Sequence[int], removable: Sequence[int]
) -> dict[int, float]:
    """Layer -> the mean loss without it, of a model that has only the layers `kept`.

    The model is run once, and then for each layer from the recorded input of that layer on.
    """
    values: dict[int, list[Tensor]] = {number: [] for number in removable}
    skipped = {*range(families.depth(model))} - {*kept}
    for batch in batches:
        skips = Skips(skipped)
        with skipping(model, skips):
            loss(model, batch)
            for number in removable:
                skips.start = number
                values[number].append(loss(model, batch).float())
    return {number: mean_of(torch.cat(of_layer)).item() for number, of_layer in values.items()}


def most_important(model: Any, layers: Sequence[int], scores: Importance, hidden: int, ffn: int) -> Kept:
    """The most important `hidden` hidden channels, the matching number of heads, and `ffn` FFN channels of `layers`.

    Heads and FFN channels are chosen separately in each layer, unless layers share them.
    """
    record, size = families.family_of(model), families.width(model) // families.heads(model)
    heads, inner = scores.heads[list(layers)], scores.ffn[list(layers)]
    if record.shared_layers or record.shared_heads:
        heads = heads.sum(0, keepdim=True).expand_as(heads)
    if record.shared_layers:
        inner = inner.sum(0, keepdim=True).expand_as(inner)
    return Kept(
        list(layers),
        top(scores.hidden, hidden),
        [top(row, hidden // size) for row in heads],
        [top(row, ffn) for row in inner],
    )


def top(scores: Tensor, count: int) -> Tensor:
    """Indices [count] of the highest scores [n], ascending. Of equal scores, the first count."""
    return scores.sort(descending=True, stable=True).indices[:count].sort().values
