"""With a budget: how much of a training there is time for."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from distill.pipeline.budget import LEAST_SHARE, Ladder, share_of


@pytest.mark.parametrize(
    ("estimated", "left", "share"),
    [(60.0, 120.0, 1.0), (100.0, 50.0, 0.5), (100.0, 100 * LEAST_SHARE - 1, 0.0), (10.0, -5.0, 0.0), (0.0, -5.0, 1.0)],
)
def test_trains_as_much_as_there_is_time_for(estimated: float, left: float, share: float) -> None:
    assert share_of(estimated, left) == share


@pytest.mark.parametrize(("in_headline", "expected"), [(True, 75.0), (False, 90.0)])
def test_a_task_counts_by_its_setting_and_not_by_its_name(in_headline: bool, expected: float) -> None:
    """The teacher scores 50 on both tasks; a model of 30 and 45 points retains 75% of that, or 90% on rte alone."""
    scores = {"teacher": {"wnli": {"float32": 50.0}, "rte": {"float32": 50.0}}}
    scores["2x"] = {"wnli": {"onnxruntime": 30.0}, "rte": {"onnxruntime": 45.0}}
    tasks = {name: SimpleNamespace(task=SimpleNamespace(in_headline=True)) for name in ("wnli", "rte")}
    tasks["wnli"].task.in_headline = in_headline
    folder = SimpleNamespace(result=lambda step, kind: SimpleNamespace(development=scores[step]))
    form: Any = SimpleNamespace(key="onnxruntime")
    parts: Any = {"folder": folder, "tasks": tasks, "teacher": "teacher"}
    others: Any = dict.fromkeys({field.name for field in dataclasses.fields(Ladder)} - parts.keys())
    step: Any = "2x"
    assert Ladder(**parts, **others).retained(step, form) == pytest.approx(expected)
