"""The teacher's layers that those of a student were copied from, kept on the model until it is saved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_NAME = "distill_copied_layers"
_DEPTH = "distill_copied_from"


def copied_layers(model: Any) -> list[int] | None:
    """The teacher's layer of each of a student's, counted from 0; None if it is unknown."""
    known = getattr(model, _NAME, None)
    return None if known is None else list(known)


def copied_from(model: Any) -> int | None:
    """Number of layers of the teacher that `copied_layers` are of; None if it is unknown."""
    return getattr(model, _DEPTH, None)


def with_copied_layers(model: Any, source: Any, layers: Sequence[int], depth: int) -> Any:
    """The model, whose layers were copied from these of `source`, which has `depth`: of a student, they are those of
    its teacher."""
    before = copied_layers(source)
    setattr(model, _NAME, [*layers] if before is None else [before[layer] for layer in layers])
    setattr(model, _DEPTH, depth if before is None else copied_from(source))
    return model
