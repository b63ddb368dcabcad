"""Sizes of tiny models for tests of pruning, and what is kept of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from distill.models import families
from tests.tiny import SHAPES

SIZES = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 24}
SHARED = [name for name in SHAPES if families.STUDENTS[name].shared_layers or families.STUDENTS[name].shared_heads]
"""Families whose layers have the same heads."""


def logits(model: Any, batch: dict[str, Tensor]) -> Tensor:
    return model(**families.inputs(model, batch)).logits


def some(count: int, keep: int, seed: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:keep].sort().values


def masks(count: int, kept: Sequence[Tensor]) -> list[Tensor]:
    """[1, count] of each layer: 1 for what is kept."""
    return [torch.zeros(1, count).index_fill(1, places, 1.0) for places in kept]
