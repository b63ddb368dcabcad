"""Losses: pure functions of tensors that return one value per row, without reduction; those of `relational` that
compare the rows of a batch with each other return values whose mean is the loss of the batch.

`distill.losses.objective` selects the rows (masked positions, tokens or examples), sums the values and weights
the terms.
Every function exported here is tested against an oracle.
"""

from __future__ import annotations

from distill.losses.divergences import decoupled_kl, jensen_shannon, reverse_kl, skewed_kl
from distill.losses.hidden import cosine, mse
from distill.losses.logits import mlm, soft_targets, supervised
from distill.losses.relational import angles, distances, inter_class, intra_class

__all__ = [
    "angles",
    "cosine",
    "decoupled_kl",
    "distances",
    "inter_class",
    "intra_class",
    "jensen_shannon",
    "mlm",
    "mse",
    "reverse_kl",
    "skewed_kl",
    "soft_targets",
    "supervised",
]
