"""Gates within a forward pass: on heads, FFN channels, hidden channels and whole layers.

With gates of 0 and 1 the model computes what it computes once it is pruned by them. Gates in between can be folded into
the weights, except gates of layers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from distill.compression.pruning.importance import masked, output_projections
from distill.compression.pruning.prune import Cut, cuts, everything
from distill.models import families
from distill.runtime.precision import working


@dataclass(frozen=True)
class Masks:
    """Factors on the parts of a model."""

    heads: list[Tensor]
    """[1, heads] for each layer."""
    ffn: list[Tensor]
    """[1, FFN channels] for each layer."""
    hidden: Tensor | None = None
    """[H]; None if hidden channels have no gates."""
    layers: Tensor | None = None
    """[layers]; None if layers have no gates."""


@contextmanager
def gated(model: Any, masks: Masks, places: Sequence[Cut] | None = None) -> Iterator[None]:
    """Within the context, the model is masked. `places` is the result of `places(model)`; None computes it."""
    with masked(model, masks.heads, masks.ffn), _narrowed(model, masks.hidden, places), _skipped(model, masks.layers):
        yield


def places(model: Any) -> list[Cut]:
    """Where masks on hidden channels reach every module that reads them: the outputs of norms as wide as hidden states,
    the outputs of linear modules outside of the layers, and the inputs of linear modules in a layer that read relative
    positions."""
    kept, paths = everything(model), families.family_of(model).layer
    assert paths is not None
    main = set(vars(paths).values())
    linear = [
        (path, module)
        for layer in families.layers(model)
        for path, module in layer.named_modules()
        if isinstance(module, nn.Linear)
    ]
    after_norms, in_layers = {module for path, module in linear if path in main}, {module for _, module in linear}
    return [
        cut
        for cut in cuts(model, replace(kept, hidden=kept.hidden[1:]))
        if len(cut.removed)
        and cut.module not in after_norms
        and (cut.axis == "in") == (cut.module in in_layers)
        and not isinstance(cut.module, nn.Embedding)  # followed by a norm
    ]


@contextmanager
def _narrowed(model: Any, hidden: Tensor | None, where: Sequence[Cut] | None) -> Iterator[None]:
    """Multiply hidden channels by `hidden` [H]; norms take mean and variance of the channels that are not 0.

    The norm of a pruned model is over its remaining channels. The outputs of norms are masked, and not what is added to
    hidden states, so that masks can be folded where the norm comes first, as in ModernBERT.
    """
    if hidden is None:
        yield
        return
    is_open = hidden.detach() != 0
    count = is_open.sum().clamp(min=1)

    def read(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (inputs[0] * hidden.to(inputs[0].dtype), *inputs[1:])

    def written(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return output * hidden.to(output.dtype)

    def normed(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        x = working(inputs[0]) * is_open
        if not type(module).__name__.endswith("RMSNorm"):  # which takes no mean
            x = (x - x.sum(-1, keepdim=True) / count) * is_open
        eps = module.eps if hasattr(module, "eps") else module.variance_epsilon
        result = x * torch.rsqrt(x.square().sum(-1, keepdim=True) / count + eps) * module.weight
        bias = getattr(module, "bias", None)
        return ((result if bias is None else result + bias) * hidden).to(output.dtype)

    with ExitStack() as hooks:
        for cut in places(model) if where is None else where:
            if cut.axis == "in":
                hooks.enter_context(cut.module.register_forward_pre_hook(read))
            else:
                hooks.enter_context(cut.module.register_forward_hook(written if cut.axis == "out" else normed))
        yield


@contextmanager
def _skipped(model: Any, gates: Tensor | None) -> Iterator[None]:
    """The output of each layer is z layer(x) + (1 - z) x for its input x and its gate z: 0 is its removal.

    A shared layer has a gate for each time it is applied.
    """
    if gates is None:
        yield
        return
    number, given = -1, torch.empty(0)

    def start(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        nonlocal number
        number = -1

    def begin(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        nonlocal number, given
        number, given = number + 1, inputs[0]

    def end(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        first = output[0] if isinstance(output, tuple) else output
        gate = gates[number].to(first.dtype)
        first = gate * first + (1 - gate) * given.to(first.dtype)
        return (first, *output[1:]) if isinstance(output, tuple) else first

    with ExitStack() as hooks:
        hooks.enter_context(families.encoder(model).register_forward_pre_hook(start))
        for layer in dict.fromkeys(families.layers(model)):
            hooks.enter_context(layer.register_forward_pre_hook(begin))
            hooks.enter_context(layer.register_forward_hook(end))
        yield


@dataclass
class Skips:
    """Which layers a model skips, and where it starts from a recorded input. Layers are numbered from 0."""

    skipped: Collection[int] = ()
    """Layers that are left out: their output is their input."""
    start: int | None = None
    """Layer whose output is the input recorded for it, in place of its own; the layers before it are not run. With
    None, all layers that are not skipped are run, and their inputs are recorded."""
    inputs: dict[int, Tensor] = field(default_factory=dict)
    """Layer -> its recorded input [B, L, H]."""


@contextmanager
def skipping(model: Any, skips: Skips) -> Iterator[None]:
    """Within the context, the layers of the model are run as `skips` states at the time of the call.

    Its outputs equal the outputs of a model pruned to the layers that are run, and it is not copied. A shared layer has
    a number for each time it is applied.
    """
    number, rest, seen = -1, None, False

    def begin(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        nonlocal number
        number = -1

    def replacing(forward: Callable[..., Any]) -> Callable[..., Any]:
        def run(hidden: Tensor, *inputs: Any, **named: Any) -> Any:
            nonlocal number, rest, seen
            number += 1
            given, skip = hidden, number in skips.skipped
            if skips.start is None:
                skips.inputs[number] = hidden
            elif number <= skips.start:
                given, skip = skips.inputs[number] if number == skips.start else hidden, True
            if not (skip and seen):
                output, seen = forward(hidden, *inputs, **named), True
                # A skipped layer must output the same further values as other layers, such as None for attention
                # weights. If the first layer is skipped, these are still unknown, and the layer is run once.
                rest = output[1:] if isinstance(output, tuple) else None
                if not skip:
                    return output
            return given if rest is None else (given, *rest)

        return run

    # A layer may have such an attribute already, for example of accelerate.
    layers = {layer: {k: v for k, v in vars(layer).items() if k == "forward"} for layer in families.layers(model)}
    for layer in layers:
        layer.forward = replacing(layer.forward)
    try:
        with families.encoder(model).register_forward_pre_hook(begin):
            yield
    finally:
        for layer, before in layers.items():
            del layer.forward
            vars(layer).update(before)


@torch.no_grad()
def merge(model: Any, masks: Masks) -> None:
    """Multiply the masks into the weights, in place; the model then needs no hooks.

    With masks of hidden channels it equals the masked model only once channels of 0 are pruned, because of the norms.
    Masks of layers are not merged, because no weights express an interpolation between a layer's input and its output.
    """
    size = families.width(model) // families.heads(model)
    # The dictionary contains a shared layer only once.
    pairs = zip(masks.heads, masks.ffn, strict=True)
    for (attention, out), (head, inner) in dict(zip(output_projections(model), pairs, strict=True)).items():
        attention.weight.mul_(head.repeat_interleave(size, 1))
        out.weight.mul_(inner)
    if (hidden := masks.hidden) is None:
        return
    for place in places(model):
        if place.axis == "in":
            place.module.get_parameter("weight").mul_(hidden)
            continue
        for parameter in place.module.parameters():
            parameter.mul_(hidden[:, None] if parameter.ndim == 2 else hidden)
