"""Learning-rate schedules: factors as pure functions of the step, so that a checkpoint needs no scheduler state."""

from __future__ import annotations


def linear(step: int, total: int, *, warmup: float) -> float:
    """Linear from 0 to 1 over the first `warmup` share of `total` steps, then linear to 0. `step` counts from 0."""
    warmup_steps = max(1, round(warmup * total)) if warmup > 0 else 0
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return max(0.0, (total - step) / max(1, total - warmup_steps))


def constant(step: int, total: int, *, warmup: float) -> float:
    """Linear from 0 to 1 over the first `warmup` share of `total` steps, then 1. `step` counts from 0."""
    warmup_steps = max(1, round(warmup * total)) if warmup > 0 else 0
    return min(1.0, (step + 1) / warmup_steps) if warmup_steps else 1.0
