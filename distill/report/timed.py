"""The shapes that were timed, and the latency of a model at one of them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from distill.evaluation.results import Latency, Model, Results

REQUESTS = "single requests"
"""Name of the input of single requests at the tasks' own lengths, beside batch x length such as `8x128`."""


def shapes(results: Results) -> list[str]:
    """Names of all timed shapes, in order; the name of a fixed one is batch x length, e.g. `8x128`."""
    rows = [row for m in results.models for row in (m.latency_ms or ())]
    return list(dict.fromkeys(row.input for row in rows))


def reported_input(results: Results) -> str | None:
    """The inputs of the reported speedups: rows of the tasks at their own lengths.

    In runs with `older_rules`, the middle one of the inputs with a fixed batch and length.
    """
    rows = [row for m in results.models for row in (m.latency_ms or ())]
    fixed = list(dict.fromkeys(row.input for row in rows if row.batch is not None))
    own = list(dict.fromkeys(row.input for row in rows if row.batch is None))
    if own and any(m.speedup and m.speedup.by_input for m in results.models):
        return own[0]
    names = fixed or shapes(results)
    return names[len(names) // 2] if names else None


def at(names: Iterable[str | None]) -> str:
    """` at SHAPE`, for the inputs of a speedup; an empty text if none were timed."""
    timed = {name for name in names if name}
    if len(timed) > 1:
        return " at the inputs of its run"
    return f" at {_short(timed.pop())}" if timed else ""


def _short(name: str) -> str:
    """A shape, such as 8x128, or what all other inputs are."""
    return name if re.fullmatch(r"\d+x\d+", name) else "the tasks' own lengths"


def latency(model: Model, shape: str | None) -> Latency | None:
    """The row of a timed shape, by its name."""
    return next((row for row in (model.latency_ms or ()) if row.input == shape), None)


def median(model: Model, shape: str | None) -> float | None:
    """Milliseconds at a timed shape."""
    row = latency(model, shape)
    return row.median if row else None


def milliseconds(model: Model) -> dict[str, float]:
    """Input -> median milliseconds, single requests among them where they were timed."""
    timed = {row.input: row.median for row in (model.latency_ms or ())}
    single = model.requests
    return timed | ({REQUESTS: single.p50} if single else {})
