"""8 bits or 4, simulated: what a linear module would answer if its weights and inputs were rounded."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.nn import Embedding

LEVELS = 127
"""Largest int8 weight: symmetric, so that zero stays zero."""


def _through(exact: Tensor, rounded: Tensor) -> Tensor:
    """`rounded` on the way there, the gradient of `exact` on the way back (straight-through; Bengio et al. 2013, arXiv
    1308.3432)."""
    return exact + (rounded - exact).detach()


def weight(exact: Tensor) -> Tensor:
    """[O, I], each row rounded to int8 by its largest absolute value."""
    exact = exact.float()
    scale = exact.detach().abs().amax(1, keepdim=True).clamp(min=1e-12) / LEVELS
    return _through(exact, (exact / scale).round() * scale)


def activation(exact: Tensor) -> Tensor:
    """Any shape, rounded to 8 bits between the least and the greatest of the whole tensor, zero among them.

    One scale and one zero point, as ONNX Runtime quantizes activations at run time (Jacob et al. 2018, arXiv
    1712.05877, equation 1).
    """
    exact = exact.float()
    low, high = exact.detach().amin().clamp(max=0), exact.detach().amax().clamp(min=0)
    scale = ((high - low) / 255).clamp(min=1e-12)
    zero = (-low / scale).round()
    return _through(exact, ((exact / scale).round() + zero).clamp(0, 255).sub(zero) * scale)


def by_token(exact: Tensor) -> Tensor:
    """[..., I], each row rounded to int8 by its largest absolute value."""
    return weight(exact.flatten(0, -2)).view(exact.shape)


def table(exact: Tensor) -> Tensor:
    """[V, H], rounded to int8 by the largest absolute value of all."""
    return weight(exact.flatten()[None]).view(exact.shape)


def nf4(exact: Tensor) -> Tensor:
    """[O, I], blocks of 64 rounded to 4-bit NormalFloat by bitsandbytes itself."""
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    exact = exact.float()
    packed, state = quantize_4bit(exact.detach(), blocksize=64, quant_type="nf4")
    return _through(exact, dequantize_4bit(packed, state))


ROUNDING: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "tensor": (weight, activation),
    "token": (weight, by_token),
    "nf4": (nf4, lambda exact: exact),
}
"""How a scheme rounds -> what becomes of weights and of inputs."""


@contextmanager
def faked(model: Any, modules: Collection[str], rounding: str = "tensor") -> Iterator[None]:
    """Inside, these linear modules, or tables of embeddings, of a model work in few bits. Its weights stay float32, and
    what trains are these.
    """
    weights, inputs = ROUNDING[rounding]
    changed = [model.get_submodule(name) for name in modules]

    def linear(module: Any, given: Tensor) -> Tensor:
        return F.linear(inputs(given), weights(module.weight), module.bias)

    def lookup(module: Any, given: Tensor) -> Tensor:
        return F.embedding(given, table(module.weight), module.padding_idx)

    for module in changed:
        module.forward = functools.partial(lookup if isinstance(module, Embedding) else linear, module)
    try:
        yield
    finally:
        for module in changed:
            del module.forward
