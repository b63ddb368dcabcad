"""Learning-rate factors: pure functions of the step, so that there is no scheduler state to lose."""

from __future__ import annotations


def linear(step: int, total: int, *, warmup: float) -> float:
    """Linear from 0 to 1 over the first `warmup` share of `total` steps, then linear to 0. `step` counts from 0."""
    rising = max(1, round(warmup * total)) if warmup > 0 else 0
    if step < rising:
        return (step + 1) / rising
    return max(0.0, (total - step) / max(1, total - rising))


def constant(step: int, total: int, *, warmup: float) -> float:
    """Linear from 0 to 1 over the first `warmup` share of `total` steps, then 1."""
    rising = max(1, round(warmup * total)) if warmup > 0 else 0
    return min(1.0, (step + 1) / rising) if rising else 1.0
