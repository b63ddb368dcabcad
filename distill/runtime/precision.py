"""The precision in which models and losses are computed."""

from __future__ import annotations

import torch
from torch import Tensor

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""The precisions of 16 bits."""


def working(values: Tensor) -> Tensor:
    """`values`, of any shape, in float32, or unchanged if float64: sums over a vocabulary are too coarse in bf16."""
    return values if values.dtype == torch.float64 else values.float()
