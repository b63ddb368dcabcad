"""Inputs that do not fit together are refused once they are loaded, before any training."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from distill import fits
from distill.config import Config, Teacher, Term, Train
from distill.data.kinds import KINDS
from distill.data.task import Task
from distill.errors import ConfigError


def context(kind: str, teachers: int, window: int | None) -> Any:
    task = Task("own", KINDS[kind], ("text",), ("a", "b") if KINDS[kind].named else (), KINDS[kind].metrics)
    return SimpleNamespace(
        config=Config(teacher=Teacher(window=window)),
        given=SimpleNamespace(teachers=["x"] * teachers),
        tasks={"own": SimpleNamespace(task=task, train=range(100))},
    )


@pytest.mark.parametrize(("teachers", "window"), [(1, None), (2, None), (1, 64)])
@pytest.mark.parametrize("kind", KINDS)
def test_only_outputs_that_can_be_averaged_are(kind: str, teachers: int, window: int | None) -> None:
    """The softmax over classes has no meaning for labels that do not exclude each other."""
    refused = not KINDS[kind].averaged and (teachers, window) != (1, None)
    if not refused:
        fits.check_rows(context(kind, teachers, window), [])
        return
    with pytest.raises(ConfigError, match=f"^tasks.kind: got {kind} for own; must not be {kind} with sev"):
        fits.check_rows(context(kind, teachers, window), [])


@pytest.mark.parametrize("kind", KINDS)
def test_margins_are_refused_for_tasks_without_queries(kind: str) -> None:
    step = SimpleNamespace(stage="s", settings=Train(terms={"m": Term(features="margins"), "x": Term(weight=0)}))
    without = SimpleNamespace(stage="s", settings=Train(terms={"m": Term(weight=0, features="margins"), "x": Term()}))
    fits.check_margins(context(kind, 1, None), [without])
    if kind == "reranking":
        fits.check_margins(context(kind, 1, None), [step])
        return
    with pytest.raises(ConfigError, match=f"^stages.s.terms.m.weight: got 1; must be 0 for own, a task of kind {kind}"):
        fits.check_margins(context(kind, 1, None), [step])
