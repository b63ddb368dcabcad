"""Training in 16 bits, with weights, gradients and optimizer in float32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from distill.config import Train
from distill.config.feature_kinds import LOGITS
from distill.losses.shared_encoder import Trainable
from distill.models import families


class InBf16(nn.Module):
    """An objective whose forward pass uses copies of its parameters in bfloat16. Their gradients are in float32.

    Autocast would keep norms, and what is added to their outputs, in float32 on a GPU, and convert before and after
    each.
    """

    def __init__(self, objective: Trainable) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Sum of each term over a batch, as from the objective, `[terms]`."""
        device = next(iter(batch.values())).device
        with torch.autocast(device.type, enabled=False), _in_bf16(self.objective):
            sums: Tensor = self.objective(batch)
        return sums


class InFp16(nn.Module):
    """An objective whose forward pass is under autocast in float16. Gradients in float16 below 6e-8 would be zeros:
    those of its sums are multiplied by the scale of `scaler`, by which the gradients of the parameters are divided
    before they are used. Source: Micikevicius et al., Mixed Precision Training (2018), section 3.2.
    """

    def __init__(self, objective: Trainable, scaler: torch.amp.GradScaler) -> None:
        super().__init__()
        self.objective, self.scaler = objective, scaler

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Sum of each term over a batch, as from the objective, `[terms]`."""
        device = next(iter(batch.values())).device
        with torch.autocast(device.type, torch.float16):
            sums: Tensor = self.objective(batch)
        sums.register_hook(self.scaler.scale)
        return sums


@contextmanager
def _in_bf16(module: nn.Module) -> Iterator[None]:
    """Within the context, the parameters of a module are copies in bfloat16, through which gradients reach them."""
    # torch.func.functional_call leaves copies in modules that have several parents, as an encoder of several tasks has.
    before = [(part, dict(part._parameters)) for part in module.modules()]
    copies: dict[nn.Parameter, Tensor] = {p: p.to(torch.bfloat16) for p in module.parameters()}
    try:
        for part, own in before:
            part._parameters.update({name: p if p is None else copies[p] for name, p in own.items()})  # type: ignore[misc]
        yield
    finally:
        for part, own in before:
            part._parameters.update(own)


def in_arithmetic(
    objective: Trainable, settings: Train, accelerator: Accelerator, scaler: torch.amp.GradScaler | None = None
) -> nn.Module:
    """The objective in the arithmetic of training: an `InFp16` where `scaler` scales losses, an `InBf16` on a GPU that
    trains in bf16, else unchanged, under autocast.

    Gates and simulated quantization compute in float32 next to the model, which autocast combines; vocabulary logits of
    all positions are computed again in the backward pass, when the parameters are in float32 again.
    """
    if scaler is not None and scaler.is_enabled():
        return InFp16(objective, scaler)
    halved = accelerator.device.type == "cuda" and accelerator.mixed_precision == "bf16"
    every = settings.data == "corpus" and any(
        t.kind is LOGITS and t.positions == "all" for t in objective.terms.values()
    )
    plain = objective.gates is None and not settings.quantization_aware and not every
    return InBf16(objective) if halved and plain and families.family_of(objective.student).bf16 else objective
