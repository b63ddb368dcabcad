"""The loads under which models are timed and chosen."""

from __future__ import annotations

from typing import Any, Literal, Protocol

Load = Literal["batch", "single"]
BATCH: Load = "batch"
SINGLE: Load = "single"
LOADS = (BATCH, SINGLE)

SINGLE_TEXTS = "single texts of the tasks, one at a time"
"""The name of the timed inputs of `SINGLE`."""


class Asked(Protocol):
    """The settings of a target that say how its models will be asked."""

    load: str | None
    speedup: Any
    latency_ms: Any
    shape: Any


def load_of(target: Asked) -> Load:
    """The load that a target is about: the one that is set, that of a fixed shape, or one text at a time for a
    latency, and otherwise batches."""
    if target.load is not None:
        return SINGLE if target.load == SINGLE else BATCH
    timed = target.speedup is not None or target.latency_ms is not None
    if timed and isinstance(target.shape, list):
        return SINGLE if target.shape[0] == 1 else BATCH
    return BATCH if target.latency_ms is None else SINGLE
