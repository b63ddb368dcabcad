"""The loads under which models are timed and chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distill.config.models import Target

BATCH, SINGLE = "batch", "single"
LOADS = (BATCH, SINGLE)


def load_of(target: Target) -> str:
    """The load that a target is about: the one that is set, that of a fixed shape, or one text at a time for a
    latency, and otherwise batches."""
    if target.load is not None:
        return target.load
    if isinstance(target.shape, list):
        return SINGLE if target.shape[0] == 1 else BATCH
    return BATCH if target.latency_ms is None else SINGLE
