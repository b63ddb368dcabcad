"""What a forward pass leaves for the loss terms: logits, and the output of the layers asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor, nn

from distill import family


@dataclass(frozen=True)
class Features:
    """Outputs of one forward pass over a batch of B sequences of length L."""

    logits: Tensor | None
    """Task logits [B, C]. None for a language model: `family.mlm_logits` gives those of chosen positions."""
    hidden: dict[int, Tensor]
    """Layer number, from 0 -> output of that layer [B, L, H]."""
    mask: Tensor
    """1 at tokens, 0 at padding [B, L]."""


def capture(model: nn.Module, batch: dict[str, Tensor], layers: Sequence[int]) -> Features:
    """Run the model once and keep the outputs of `layers`, by hooks on those layers alone."""
    with _recording(model, layers) as hidden:
        if family.has_mlm_head(model):
            family.encode(model, batch)
            logits = None
        else:
            logits = model(**family.inputs(model, batch)).logits
    return Features(logits, hidden, batch["attention_mask"])


@contextmanager
def _recording(model: nn.Module, numbers: Sequence[int]) -> Iterator[dict[int, Tensor]]:
    hidden: dict[int, Tensor] = {}

    def keep(number: int) -> Callable[[nn.Module, object, Tensor], None]:
        def hook(module: nn.Module, args: object, output: Tensor) -> None:
            hidden[number] = output

        return hook

    stack = family.layers(model)
    handles = [stack[number].register_forward_hook(keep(number)) for number in numbers]
    try:
        yield hidden
    finally:
        for handle in handles:
            handle.remove()
