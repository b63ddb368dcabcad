"""How much a model's answers depend on each head, FFN channel, hidden channel and layer.

Scores of one kind compare among themselves: heads with heads, over all layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from distill import family
from distill.student.shape import setting

SCORES = "scores.safetensors"
"""File of scores, beside the model that they are of."""

Batch = dict[str, Tensor]
Loss = Callable[[nn.Module, Batch], Tensor]
"""Model, batch -> the loss of each row [B]."""


@dataclass(frozen=True)
class Importance:
    """The larger, the more is lost without it."""

    heads: Tensor
    """[layers, heads]."""
    ffn: Tensor
    """[layers, channels]."""
    hidden: Tensor
    """[channels]."""
    grams: list[tuple[Tensor, Tensor]] | None = None
    """Of each layer, what its remaining weights can be refitted by; see `reconstruct`."""


def write(scores: Importance, file: Path) -> None:
    """Keep scores as safetensors; matrices to refit by are left out."""
    save_file({"heads": scores.heads, "ffn": scores.ffn, "hidden": scores.hidden}, file)


def read(file: Path) -> Importance:
    return Importance(**load_file(file))


def magnitude(model: Any, batches: Iterable[Batch] = (), loss: Loss | None = None) -> Importance:
    """Squared size of what a part writes, by its weights alone: L2 in place of the L1 norm of Li et al. 2017, arXiv
    1608.08710.

    Of a head or an FFN channel the columns that write it into the hidden states, of a hidden channel all weights of the
    layers that write it. `batches` and `loss` are for its fellows below.
    """
    record = family.family_of(model)
    assert record.layer is not None
    count = family.heads(model)
    heads, ffn, hidden = [], [], torch.zeros(family.width(model))
    for layer in family.layers(model):
        attention, out = (
            layer.get_submodule(path).weight.detach().float().square().cpu()  # type: ignore[operator]
            for path in (record.layer.attention_output, record.layer.ffn_out)
        )
        heads.append(attention.sum(0).unflatten(0, (count, -1)).sum(1))
        ffn.append(out.sum(0))
        hidden += attention.sum(1) + out.sum(1)
    return Importance(torch.stack(heads), torch.stack(ffn), hidden)


def taylor(model: Any, batches: Iterable[Batch], loss: Loss) -> Importance:
    """Mean over rows of |dL/dm| for a mask m = 1 on each part: Michel et al. 2019, arXiv 1905.10650, equation 2.

    The first-order change of the loss without the part (Molchanov et al. 2017, arXiv 1611.06440).
    """
    return _by_masks(model, batches, loss, torch.abs)


def fisher(model: Any, batches: Iterable[Batch], loss: Loss) -> Importance:
    """Mean over rows of (dL/dm)^2, the diagonal of the Fisher information of masks: Kwon et al. 2022, arXiv 2204.09656,
    equation 8. Half of it is the second-order change of the loss without the part.
    """
    return _by_masks(model, batches, loss, torch.square)


def _by_masks(model: Any, batches: Iterable[Batch], loss: Loss, measure: Callable[[Tensor], Tensor]) -> Importance:
    """Mean over rows of `measure` of the gradient of each row's own loss with respect to masks."""
    depth, count, rows = family.depth(model), family.heads(model), 0
    shapes = {
        "heads": (depth, count),
        "ffn": (depth, setting(model.config, "intermediate_size")),
        "hidden": (1, family.width(model)),
    }
    sums = {name: torch.zeros(shape) for name, shape in shapes.items()}
    for batch in batches:
        size = len(batch["input_ids"])
        device = batch["input_ids"].device
        masks = {
            name: [torch.ones((size, width), device=device, requires_grad=True) for _ in range(number)]
            for name, (number, width) in shapes.items()
        }
        with masked(model, masks["heads"], masks["ffn"], masks["hidden"][0]):
            values = loss(model, batch)
        leaves = [mask for several in masks.values() for mask in several]
        # Rows do not mix: the gradient of the sum has each row's own in its own row.
        found = iter(torch.autograd.grad(values.sum(), leaves))
        for name, several in masks.items():
            sums[name] += torch.stack([measure(next(found).float()).sum(0).cpu() for _ in several])
        rows += size
    return Importance(sums["heads"] / rows, sums["ffn"] / rows, sums["hidden"][0] / rows)


@contextmanager
def masked(model: Any, heads: list[Tensor], ffn: list[Tensor], hidden: Tensor | None = None) -> Iterator[None]:
    """The model with each layer's heads and FFN channels, and all hidden states, multiplied by masks.

    heads: [B or 1, heads] of each layer; ffn: [B or 1, channels]; hidden: [B or 1, H], at the input of every layer and
    the output of the last.
    A layer that is shared has a mask for each of its turns.
    """
    record = family.family_of(model)
    assert record.layer is not None
    count, turn = family.heads(model), -1

    def again(module: nn.Module, given: tuple[Any, ...]) -> None:
        nonlocal turn
        turn = -1

    def begin(module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
        nonlocal turn
        turn += 1
        return None if hidden is None else (given[0] * hidden[:, None].to(given[0].dtype), *given[1:])

    def end(module: nn.Module, given: tuple[Any, ...], output: Any) -> Any:
        # What poolers and heads read: hidden channels that only they need count as well.
        if hidden is None or turn != len(ffn) - 1:
            return None
        first = output[0] if isinstance(output, tuple) else output
        first = first * hidden[:, None].to(first.dtype)
        return (first, *output[1:]) if isinstance(output, tuple) else first

    def attended(module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        mask = heads[turn][:, None, :, None].to(given[0].dtype)
        return ((given[0].unflatten(-1, (count, -1)) * mask).flatten(-2), *given[1:])

    def inner(module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (given[0] * ffn[turn][:, None].to(given[0].dtype), *given[1:])

    handles = [family.encoder(model).register_forward_pre_hook(again)]
    for layer in dict.fromkeys(family.layers(model)):
        handles += [layer.register_forward_pre_hook(begin), layer.register_forward_hook(end)]
        handles.append(layer.get_submodule(record.layer.attention_output).register_forward_pre_hook(attended))
        handles.append(layer.get_submodule(record.layer.ffn_out).register_forward_pre_hook(inner))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
