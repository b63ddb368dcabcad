"""Speedups over the teacher's fastest variant that keeps its own score: what a user has without distillation."""

from __future__ import annotations

from distill.evaluation.record import Interval
from distill.evaluation.results import Model, Results, known
from distill.evaluation.time_results import KEPT, Over
from distill.report import verdict


def kept(model: Model) -> Over | None:
    """Speedup over that variant; None if it is the reference of the reported speedup, or was not measured."""
    ways = known(model.speedup)
    found = known(ways.over_kept) if ways else None
    return None if ways is None or found is None or found.median == ways.best_teacher else found


def kept_name(results: Results) -> str:
    """That variant, as in `your model in int8 openvino`; an empty text without one."""
    found = next((over for model in results.models if (over := kept(model)) is not None), None)
    return "" if found is None else _name(found)


def _name(over: Over) -> str:
    return f"your model in {over.scheme} {over.backend}"


def note(results: Results) -> list[str]:
    """What that variant is, as a sentence in a list; empty without one."""
    name = kept_name(results)
    if not name:
        return []
    return [f"{name[0].upper()}{name[1:]}: {_WHICH}, with the load of the run. {verdict.known_rows(results)}".rstrip()]


def short(model: Model) -> str:
    """`, 1.40x your model in int8 openvino`; an empty text without such a speedup."""
    over = kept(model)
    return "" if over is None else f", {over.median:.2f}x {_name(over)}"


def sentence(model: Model) -> str:
    """The same as a sentence, with the interval."""
    over = kept(model)
    if over is None:
        return ""
    return f" It is {over.median:.2f}x{between(of_rounds(over.ci95), 2)} the speed of {_name(over)}, {_WHICH}."


def of_rounds(ends: Interval | None) -> Interval | None:
    """The interval of a speedup; None for that of a single round, which has no width."""
    return None if ends is None or ends[0] == ends[1] else ends


def between(ends: Interval | None, digits: int) -> str:
    """A 95% interval in words; an empty text without one."""
    return f" (95% interval {ends[0]:.{digits}f} to {ends[1]:.{digits}f})" if ends else ""


_WHICH = f"the teacher's fastest variant that keeps at least {KEPT:g}% of its float32 score on the development rows"
