"""Losses: pure functions of tensors that return one value per row, without reduction.

`distill.losses.objective` selects the rows (masked positions, tokens or examples), sums the values and weights
the terms.
Every function exported here is tested against an oracle.
"""

from __future__ import annotations

from distill.losses.divergences import decoupled_kl, jensen_shannon, reverse_kl, skewed_kl
from distill.losses.hidden import cosine, mse
from distill.losses.logits import mlm, soft_targets, supervised

__all__ = [
    "cosine",
    "decoupled_kl",
    "jensen_shannon",
    "mlm",
    "mse",
    "reverse_kl",
    "skewed_kl",
    "soft_targets",
    "supervised",
]
