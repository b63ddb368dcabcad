"""Heads and FFN channels pruned wherever they matter least, not as many in each layer: no config says what is left.

So a checkpoint keeps the sizes of the unpruned model, with zeros in place of what went: plain transformers loads it,
and runs it no faster. Training keeps these zeros: a channel whose incoming and outgoing weights are both zero has no
gradient. Only the ONNX file leaves them out.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from distill import family, student
from distill.compress.importance import Importance
from distill.compress.prune import Cut, Kept, cuts, everything, sliced

STEP = 8
"""FFN channels of a layer are kept in multiples of this, which matrix units like."""


def anywhere(model: Any, layers: Sequence[int], scores: Importance, heads: int, ffn: int) -> Kept:
    """The heads and FFN channels with the highest scores over all these layers, `heads` and `ffn` to a layer on
    average; at least one head and `STEP` channels in each. Where layers share them they are the same in each.
    """
    record, whole = family.family_of(model), everything(model, layers)
    alike = record.shared_layers or record.shared_heads
    return Kept(
        whole.layers,
        whole.hidden,
        _spread(scores.heads[list(layers)], heads, 1, alike),
        _spread(scores.ffn[list(layers)], ffn, STEP, record.shared_layers),
    )


def _spread(scores: Tensor, mean: int, step: int, alike: bool) -> list[Tensor]:
    """Of scores [layers, parts] the numbers in each row, ascending, of the highest ones: `mean` to a row, in steps."""
    rows, parts = scores.shape
    if alike or mean == parts:
        return [scores.sum(0).topk(mean).indices.sort().values] * rows
    ranked = scores.sort(dim=1, descending=True, stable=True)
    # A row's best come first in it: blocks of `step` of them are taken, the block with the highest sum first.
    blocks = ranked.values[:, : parts // step * step].unflatten(1, (-1, step)).sum(2)
    blocks[:, 0] = torch.inf
    taken = torch.zeros(blocks.numel(), dtype=torch.bool)
    taken[blocks.flatten().topk(max(rows, rows * mean // step)).indices] = True
    counts = taken.view_as(blocks).sum(1) * step
    return [row[:count].sort().values for row, count in zip(ranked.indices, counts.tolist(), strict=True)]


def zeroed(model: Any, kept: Kept) -> Any:
    """A model of the class, and the widths, of `model` with the layers that are kept, and zeros where heads and FFN
    channels are not; `model` is left as it was.
    """
    whole = list(kept.layers) == list(range(family.depth(model)))
    made = copy.deepcopy(model) if whole else student.from_teacher(model, kept.layers, init="teacher_layers", seed=0)
    with torch.no_grad():
        for part in cuts(made, kept):
            _silence(part)
    return made.train(model.training)


def _silence(part: Cut) -> None:
    if isinstance(part.module, nn.Embedding) or part.axis == "in":
        part.module.get_parameter("weight")[:, part.gone] = 0
    else:
        names = ("weight", "bias") if part.axis in ("out", "width") else (part.axis,)
        for name in names:
            if (values := getattr(part.module, name, None)) is not None:
                values[part.gone] = 0


def squeezed(model: Any) -> Any:
    """The model without the heads and FFN channels that write zeros: a copy that computes the same, and that no config
    describes. The model itself where none does.
    """
    record, count = family.family_of(model), family.heads(model)
    if record.layer is None:
        return model
    whole, heads, ffn = everything(model), [], []
    for layer in family.layers(model):
        paths = (record.layer.attention_output, record.layer.ffn_out)
        attention, out = (layer.get_parameter(f"{path}.weight").detach() for path in paths)
        heads.append(_writing(attention.unflatten(1, (count, -1)).flatten(2).abs().amax((0, 2))))
        ffn.append(_writing(out.abs().amax(0)))
    if record.shared_heads:
        heads = [torch.cat(heads).unique()] * len(heads)
    kept = Kept(whole.layers, whole.hidden, heads, ffn)
    pairs = zip([*heads, *ffn], [*whole.heads, *whole.ffn], strict=True)
    if all(len(some) == len(every) for some, every in pairs):
        return model
    made = copy.deepcopy(model)
    for number, layer in enumerate(family.layers(made)):
        for module in layer.modules():
            _fewer_heads(module, len(heads[number]), count)
    sliced(list(cuts(made, kept)))
    return made


def _writing(largest: Tensor) -> Tensor:
    """Numbers of the parts that write something, ascending; the first one where none does."""
    found = largest.nonzero()[:, 0].cpu()
    return found if len(found) else torch.zeros(1, dtype=torch.long)


def _fewer_heads(module: Any, left: int, count: int) -> None:
    """The numbers that attention keeps of its heads, where it does not read them off its input."""
    for name in ("num_attention_heads", "n_heads"):
        if getattr(module, name, None) == count:
            setattr(module, name, left)
            if hasattr(module, "all_head_size"):
                module.all_head_size = module.all_head_size // count * left
