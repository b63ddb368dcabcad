"""Losses: pure functions of tensors, one value a row, never reduced.

Which rows there are (masked positions, tokens, examples) and how they are averaged and weighted is
the objective's business. Every function named here is listed in the contract test.
"""

from __future__ import annotations

from distill.losses.hidden import cosine, mse
from distill.losses.logits import mlm, soft_targets, supervised

__all__ = ["cosine", "mlm", "mse", "soft_targets", "supervised"]
