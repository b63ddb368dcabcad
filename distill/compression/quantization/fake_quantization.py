"""Simulated quantization: linear modules and embeddings computed with weights and inputs rounded to 8 or 4 bits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.nn import Embedding

from distill.runtime import outside

LEVELS = 127
"""Largest int8 value of a weight; the range is symmetric, so that zero is exact."""


def _straight_through(exact: Tensor, rounded: Tensor) -> Tensor:
    """`rounded` with the gradient of `exact`: the straight-through estimator, Bengio et al. 2013, arXiv 1308.3432."""
    return exact + (rounded - exact).detach()


def weight(exact: Tensor) -> Tensor:
    """[O, I], rounded to int8 with one scale per row, from its largest absolute value."""
    exact = exact.float()
    scale = exact.detach().abs().amax(1, keepdim=True).clamp(min=1e-12) / LEVELS
    return _straight_through(exact, (exact / scale).round() * scale)


def activation(exact: Tensor) -> Tensor:
    """[...], rounded to 8 bits with one scale and one zero point, from the minimum and maximum of the whole tensor.

    As ONNX Runtime quantizes activations dynamically; Jacob et al. 2018, arXiv 1712.05877, equation 1.
    """
    exact = exact.float()
    low, high = exact.detach().amin().clamp(max=0), exact.detach().amax().clamp(min=0)
    scale = ((high - low) / 255).clamp(min=1e-12)
    zero = (-low / scale).round()
    return _straight_through(exact, ((exact / scale).round() + zero).clamp(0, 255).sub(zero) * scale)


def by_token(exact: Tensor) -> Tensor:
    """[..., I], rounded to int8 with one scale per token, from its largest absolute value."""
    return weight(exact.flatten(0, -2)).view(exact.shape)


def table(exact: Tensor) -> Tensor:
    """[V, H], rounded to int8 with one scale for the whole table, from its largest absolute value."""
    return weight(exact.flatten()[None]).view(exact.shape)


def nf4(exact: Tensor) -> Tensor:
    """[O, I], rounded by bitsandbytes to 4-bit NormalFloat in blocks of 64."""
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    exact = exact.float()
    packed, state = quantize_4bit(exact.detach(), blocksize=64, quant_type="nf4")
    return _straight_through(exact, dequantize_4bit(packed, state))


ROUNDING: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "tensor": (weight, activation),
    "token": (weight, by_token),
    "nf4": (nf4, lambda exact: exact),
}
"""`Scheme.rounding` -> functions that round weights and inputs."""
outside.registry("rounding", ROUNDING)


@contextmanager
def faked(model: Any, modules: Collection[str], rounding: str = "tensor") -> Iterator[None]:
    """Within the context, the named linear modules and embeddings compute with simulated quantization.

    Parameters stay float32, and gradients reach them, so that the model can be trained.
    """
    round_weights, round_inputs = ROUNDING[rounding]
    changed = [model.get_submodule(name) for name in modules]

    def linear(module: Any, x: Tensor) -> Tensor:
        return F.linear(round_inputs(x), round_weights(module.weight), module.bias)

    def lookup(module: Any, ids: Tensor) -> Tensor:
        return F.embedding(ids, table(module.weight), module.padding_idx)

    for module in changed:
        module.forward = functools.partial(lookup if isinstance(module, Embedding) else linear, module)
    try:
        yield
    finally:
        for module in changed:
            del module.forward
