"""The shapes that were timed, and the latency of a model at one of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from distill.config.loads import SINGLE, SINGLE_TEXTS
from distill.evaluation.results import Model
from distill.evaluation.time_results import Latency


class Compared(Protocol):
    """What has the rows of models, and the load that they are about."""

    @property
    def models(self) -> list[Model]: ...

    @property
    def load(self) -> str: ...


def shapes(results: Compared) -> list[str]:
    """Names of all timed shapes, in order; the name of a fixed one is batch x length, e.g. `8x128`."""
    rows = [row for m in results.models for row in (m.latency_ms or ())]
    return list(dict.fromkeys(row.input for row in rows))


def reported_input(results: Compared) -> str | None:
    """The inputs of the reported speedups: texts of the tasks, with the run's load.

    In runs with `older_rules`, the middle one of the inputs with a fixed batch and length.
    """
    return SINGLE_TEXTS if results.load == SINGLE else batches(results)


def batches(results: Compared) -> str | None:
    """The inputs of speedups in batches, as `reported_input`."""
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
    return f" {_short(timed.pop())}" if timed else ""


def _short(name: str) -> str:
    """A shape, such as 8x128, single texts, or what all other inputs are."""
    if name == SINGLE_TEXTS:
        return "with single texts"
    return f"at {name}" if re.fullmatch(r"\d+x\d+", name) else "at the tasks' own lengths"


def latency(model: Model, shape: str | None) -> Latency | None:
    """The row of a timed shape, by its name."""
    return next((row for row in (model.latency_ms or ()) if row.input == shape), None)


def median(model: Model, shape: str | None) -> float | None:
    """Milliseconds with a timed input."""
    return milliseconds(model).get(shape or "")


def milliseconds(model: Model) -> dict[str, float]:
    """Input -> median milliseconds, single texts among them where they were timed."""
    timed = {row.input: row.median for row in (model.latency_ms or ())}
    single = model.requests
    return timed | ({SINGLE_TEXTS: single.p50} if single else {})
