"""Importance scores of heads, FFN channels and hidden channels, and masks on them.

Scores are comparable only within a kind (heads with heads), and there across layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from distill.models import families
from distill.models.student.shape import setting

SCORES = "scores.safetensors"
"""File of importance scores in a model's folder."""

Batch = dict[str, Tensor]
Loss = Callable[[nn.Module, Batch], Tensor]
"""(model, batch) -> the loss of each row that has a label [R]."""


@dataclass(frozen=True)
class Importance:
    """Scores; the parts of a model with the lowest ones are pruned."""

    heads: Tensor
    """[layers, heads]."""
    ffn: Tensor
    """[layers, FFN channels]."""
    hidden: Tensor
    """[H]."""
    grams: list[tuple[Tensor, Tensor]] | None = None
    """Gram matrices of each layer, with which the remaining weights are refitted; see `reconstruct`."""
    layers: Tensor | None = None
    """[layers]; None unless layers were scored."""


def write(scores: Importance, file: Path) -> None:
    """Save scores as safetensors, without the Gram matrices."""
    tensors = {"heads": scores.heads, "ffn": scores.ffn, "hidden": scores.hidden, "layers": scores.layers}
    save_file({kind: tensor for kind, tensor in tensors.items() if tensor is not None}, file)


def read(file: Path) -> Importance:
    """The scores that `write` saved."""
    return Importance(**load_file(file))


def output_projections(model: Any) -> list[tuple[Any, Any]]:
    """The attention output and the last FFN projection of each layer."""
    paths = families.family_of(model).layer
    assert paths is not None
    return [
        (layer.get_submodule(paths.attention_output), layer.get_submodule(paths.ffn_out))
        for layer in families.layers(model)
    ]


def magnitude(model: Any, batches: Iterable[Batch] = (), loss: Loss | None = None) -> Importance:
    """Squared L2 norm of the output weights, after Li et al. 2017, arXiv 1608.08710. Deviation: they use the L1 norm.

    The weights that add a head or FFN channel to the hidden states count; for a hidden channel, all weights of the
    layers that add to it. `batches` and `loss` are not used: all importances have the same arguments.
    """
    count = families.heads(model)
    heads, ffn, hidden = [], [], torch.zeros(families.width(model))
    for modules in output_projections(model):
        attention, out = (module.weight.detach().float().square().cpu() for module in modules)
        heads.append(attention.sum(0).unflatten(0, (count, -1)).sum(1))
        ffn.append(out.sum(0))
        hidden += attention.sum(1) + out.sum(1)
    return Importance(torch.stack(heads), torch.stack(ffn), hidden)


def taylor(model: Any, batches: Iterable[Batch], loss: Loss) -> Importance:
    """Mean over rows of |dL/dm| for a mask m = 1 on each head or channel: Michel et al. 2019, arXiv 1905.10650, eq. 2.

    It estimates, to first order, the change of the loss when it is removed (Molchanov et al. 2017, arXiv 1611.06440).
    """
    return _by_masks(model, batches, loss, torch.abs)


def fisher(model: Any, batches: Iterable[Batch], loss: Loss) -> Importance:
    """Mean over rows of (dL/dm)^2, the diagonal Fisher information of masks: Kwon et al. 2022, arXiv 2204.09656, eq. 8.

    Half of it estimates, to second order, the change of the loss when a head or channel is removed.
    """
    return _by_masks(model, batches, loss, torch.square)


def _by_masks(model: Any, batches: Iterable[Batch], loss: Loss, measure: Callable[[Tensor], Tensor]) -> Importance:
    """Mean over rows of `measure` of the gradient of each row's own loss with respect to masks."""
    depth, count, rows = families.depth(model), families.heads(model), 0
    shapes = {
        "heads": (depth, count),
        "ffn": (depth, setting(model.config, "intermediate_size")),
        "hidden": (1, families.width(model)),
    }
    sums = {name: torch.zeros(shape) for name, shape in shapes.items()}
    for batch in batches:
        row = _row_of_sequences(batch)
        size = int(row.max()) + 1
        masks = {
            name: [torch.ones((size, width), device=row.device, requires_grad=True) for _ in range(number)]
            for name, (number, width) in shapes.items()
        }
        heads, ffn, (hidden,) = ([mask[row] for mask in masks[name]] for name in shapes)
        with masked(model, heads, ffn, hidden):
            values = loss(model, batch)
        leaves = [mask for by_layer in masks.values() for mask in by_layer]
        # Every row has masks of its own, so that the gradient of the sum contains the gradient of each row's loss.
        gradients = iter(torch.autograd.grad(values.sum(), leaves))
        for name, by_layer in masks.items():
            sums[name] += torch.stack([measure(next(gradients).float()).sum(0).cpu() for _ in by_layer])
        rows += size
    return Importance(sums["heads"] / rows, sums["ffn"] / rows, sums["hidden"][0] / rows)


def _row_of_sequences(batch: Batch) -> Tensor:
    """[B] number of the row that each sequence belongs to, such as that of a choice. Where rows share sequences, such
    as documents of several queries, each sequence counts as a row."""
    every = torch.arange(len(batch["input_ids"]), device=batch["input_ids"].device)
    if "groups" not in batch:
        return every
    groups = batch["groups"]
    used = groups >= 0
    if used.sum() > len(every):
        return every
    rows = torch.arange(len(groups), device=groups.device)[:, None].expand_as(groups)
    return every.index_put((groups[used],), rows[used])


@contextmanager
def masked(model: Any, heads: list[Tensor], ffn: list[Tensor], hidden: Tensor | None = None) -> Iterator[None]:
    """Within the context, heads, FFN channels and hidden states of the model are multiplied by masks.

    Args:
        heads: [B or 1, heads] for each layer.
        ffn: [B or 1, FFN channels] for each layer.
        hidden: [B or 1, H], applied to the input of every layer and to the output of the last.

    A shared layer has masks for each time it is applied.
    """
    count, number = families.heads(model), -1  # number: of the layer that is running

    def start(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        nonlocal number
        number = -1

    def begin_layer(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        nonlocal number
        number += 1
        return None if hidden is None else (inputs[0] * hidden[:, None].to(inputs[0].dtype), *inputs[1:])

    def end_layer(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        # The last output too, because poolers and heads use hidden channels as well.
        if hidden is None or number != len(ffn) - 1:
            return None
        first = output[0] if isinstance(output, tuple) else output
        first = first * hidden[:, None].to(first.dtype)
        return (first, *output[1:]) if isinstance(output, tuple) else first

    def mask_heads(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        mask = heads[number][:, None, :, None].to(inputs[0].dtype)
        return ((inputs[0].unflatten(-1, (count, -1)) * mask).flatten(-2), *inputs[1:])

    def mask_ffn(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (inputs[0] * ffn[number][:, None].to(inputs[0].dtype), *inputs[1:])

    with ExitStack() as hooks:
        hooks.enter_context(families.encoder(model).register_forward_pre_hook(start))
        for layer in dict.fromkeys(families.layers(model)):
            hooks.enter_context(layer.register_forward_pre_hook(begin_layer))
            hooks.enter_context(layer.register_forward_hook(end_layer))
        for attention, out in dict.fromkeys(output_projections(model)):
            hooks.enter_context(attention.register_forward_pre_hook(mask_heads))
            hooks.enter_context(out.register_forward_pre_hook(mask_ffn))
        yield
