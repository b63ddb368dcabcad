"""Non-uniform pruning: different numbers of heads and FFN channels in each layer, which no stock config can describe.

A checkpoint therefore keeps the sizes of the unpruned model, with zeros as the pruned weights: plain transformers loads
it, and it is not faster. Training keeps the zeros: a channel whose input and output weights are both zero has no
gradient. Only the ONNX file omits the pruned channels.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from distill.compression.pruning.importance import Batch, Importance, output_projections
from distill.compression.pruning.prune import Cut, Kept, cuts, everything, only_layers, remove_channels
from distill.compression.pruning.reconstruct import refitted
from distill.compression.pruning.search import Shape
from distill.compression.pruning.sensitivity import Sensitivity
from distill.models import families

STEP = 8
"""FFN channels of a layer are kept in multiples of this, at which matrix units run at full speed."""


def anywhere(model: Any, layers: Sequence[int], scores: Importance, heads: int, ffn: int) -> Kept:
    """The heads and FFN channels with the highest scores over all of `layers`: on average `heads` and `ffn` per layer.

    Every layer keeps at least one head and `STEP` channels. Where layers share heads or channels, all keep the same.
    """
    record, whole = families.family_of(model), everything(model, layers)
    same = record.shared_layers or record.shared_heads
    return Kept(
        whole.layers,
        whole.hidden,
        _highest(scores.heads[list(layers)], heads, 1, same),
        _highest(scores.ffn[list(layers)], ffn, STEP, record.shared_layers),
    )


def _highest(scores: Tensor, mean: int, step: int, same: bool) -> list[Tensor]:
    """Ascending indices, for each row of scores [layers, channels], of the highest scores over all rows.

    On average `mean` per row; the number in each row is a multiple of `step`. With `same`, all rows have the same.
    """
    rows, columns = scores.shape
    if same or mean == columns:
        return [scores.sum(0).topk(mean).indices.sort().values] * rows
    ranked = scores.sort(dim=1, descending=True, stable=True)
    # Each row is divided into blocks of `step`, its highest scores first; blocks with the highest sums are selected.
    blocks = ranked.values[:, : columns // step * step].unflatten(1, (-1, step)).sum(2)
    blocks[:, 0] = torch.inf
    selected = torch.zeros(blocks.numel(), dtype=torch.bool)
    selected[blocks.flatten().topk(max(rows, rows * mean // step)).indices] = True
    counts = selected.view_as(blocks).sum(1) * step
    return [row[:count].sort().values for row, count in zip(ranked.indices, counts.tolist(), strict=True)]


def zeroed(model: Any, kept: Kept) -> Any:
    """A copy of `model` with only the kept layers, and zeros as the weights of heads and FFN channels not kept."""
    result = only_layers(model, kept.layers)
    with torch.no_grad():
        for removal in cuts(result, kept):
            _set_to_zero(removal)
    return result.train(model.training)


def zeroed_to(model: Any, measured: Sensitivity, shape: Shape, batches: Iterable[Batch], heads: int | None) -> Any:
    """As `sensitivity.cut_to`, with zeros in place of a smaller model. `heads`: on average per layer; all when None."""
    scores = measured.with_grams(model, batches)
    kept = anywhere(model, measured.layers[shape.layers], scores, heads or families.heads(model), shape.ffn)
    return zeroed(model if scores.grams is None else refitted(model, kept, scores.grams), kept)


def _set_to_zero(removal: Cut) -> None:
    if isinstance(removal.module, nn.Embedding) or removal.axis == "in":
        removal.module.get_parameter("weight")[:, removal.removed] = 0
    else:
        names = ("weight", "bias") if removal.axis in ("out", "width") else (removal.axis,)
        for name in names:
            if (values := getattr(removal.module, name, None)) is not None:
                values[removal.removed] = 0


def squeezed(model: Any) -> Any:
    """A copy of the model without the heads and FFN channels whose output weights are zero; `model` if it has none.

    The copy computes the same, but no stock config describes it.
    """
    record, count = families.family_of(model), families.heads(model)
    if record.layer is None:
        return model
    whole, heads, ffn = everything(model), [], []
    for modules in output_projections(model):
        attention, out = (module.weight.detach() for module in modules)
        heads.append(_nonzero(attention.unflatten(1, (count, -1)).flatten(2).abs().amax((0, 2))))
        ffn.append(_nonzero(out.abs().amax(0)))
    if record.shared_heads:
        heads = [torch.cat(heads).unique()] * len(heads)
    kept = Kept(whole.layers, whole.hidden, heads, ffn)
    pairs = zip([*heads, *ffn], [*whole.heads, *whole.ffn], strict=True)
    if all(len(nonzero) == len(every) for nonzero, every in pairs):
        return model
    smaller = copy.deepcopy(model)
    for number, layer in enumerate(families.layers(smaller)):
        for module in layer.modules():
            _set_heads(module, len(heads[number]), count)
    remove_channels(list(cuts(smaller, kept)))
    return smaller


def _nonzero(values: Tensor) -> Tensor:
    """Ascending indices of the values that are not zero; 0 if all are zero."""
    indices = values.nonzero()[:, 0].cpu()
    return indices if len(indices) else torch.zeros(1, dtype=torch.long)


def _set_heads(module: Any, count: int, before: int) -> None:
    """Set the number of heads, from `before` to `count`, in an attention module that stores it."""
    for name in ("num_attention_heads", "n_heads"):
        if getattr(module, name, None) == before:
            setattr(module, name, count)
            if hasattr(module, "all_head_size"):
                module.all_head_size = module.all_head_size // before * count
