"""Losses: pure functions of tensors, one value a row, never reduced.

The objective chooses the rows (masked positions, tokens, examples), averages them and weighs the terms. The test of
losses has an oracle for every function named here.
"""

from __future__ import annotations

from distill.losses.hidden import cosine, mse
from distill.losses.logits import mlm, soft_targets, supervised

__all__ = ["cosine", "mlm", "mse", "soft_targets", "supervised"]
