"""8 bits, simulated: what a linear module would answer if its weights and inputs were rounded to int8."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch.nn.functional as F
from torch import Tensor

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


@contextmanager
def faked(model: Any, modules: Collection[str]) -> Iterator[None]:
    """Inside, these linear modules of a model work in 8 bits. Its weights stay float32, and what trains are these."""
    changed = [model.get_submodule(name) for name in modules]

    def forward(module: Any, given: Tensor) -> Tensor:
        return F.linear(activation(given), weight(module.weight), module.bias)

    for module in changed:
        module.forward = functools.partial(forward, module)
    try:
        yield
    finally:
        for module in changed:
            del module.forward
