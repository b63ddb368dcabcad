"""What an export stage leaves when it fails, and what it times speedups at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from distill import checkpoint, config
from distill.config import Evaluate, Export
from distill.stages import evaluate, export, results


def test_folders_of_earlier_tasks_are_not_left_unproved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exported(ctx: Any, name: str, settings: Export, task: str) -> list[Any]:
        if task == "second":
            raise OSError("no space left")
        (ctx.folder / name / task).mkdir(parents=True)
        return []

    monkeypatch.setattr(export, "_export", exported)
    data = SimpleNamespace(
        validation={"validation": [{"text": "a kettle sings"}]}, task=SimpleNamespace(columns=["text"])
    )
    settings = config.load_config(["recipe=task", "limit=smoke"])
    ctx: Any = SimpleNamespace(folder=tmp_path, config=settings, tasks=({"first": data, "second": data}, []), say=print)
    with pytest.raises(OSError, match="no space left"):
        export.run(ctx, "export", Export(start="finetune"))
    assert [*(tmp_path / "export").iterdir()] == []


@pytest.mark.parametrize(
    ("shapes", "target", "timed"),
    [
        ([[1, 128], [8, 128], [32, 128]], [16, 256], [[16, 256], [1, 128], [8, 128], [32, 128]]),
        ([[1, 128], [8, 128], [32, 128]], [8, 128], [[1, 128], [8, 128], [32, 128]]),
        ([[8, 128], [1, 16], [8, 128]], [8, 128], [[8, 128], [1, 16]]),
    ],
)
def test_the_shape_of_a_target_is_timed_too(shapes: list[list[int]], target: list[int], timed: list[list[int]]) -> None:
    settings = config.load_config(["recipe=prune", f"target.shape={target}"])
    assert evaluate._shapes(SimpleNamespace(config=settings), Evaluate(shapes=shapes)) == timed  # type: ignore[arg-type]


@pytest.mark.parametrize(("asked", "found"), [("evaluate", "first"), ("again", "second"), (None, "second")])
def test_results_are_of_the_evaluation_that_is_asked_for(
    asked: str | None, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export's card, of the one it names; the report of a run, of the last."""
    settings = config.load_config(["recipe=task", "limit=smoke"])
    stages = settings.stages | {"again": settings.stages["evaluate"]}
    settings = replace(settings, pipeline=["evaluate", "again"], stages=stages)
    measured = {"environment": {}, "coverage": [], "models": [], "version": "0", "teacher": "teacher"}
    for name, command in (("evaluate", "first"), ("again", "second")):
        checkpoint.write_json(tmp_path / name / checkpoint.MANIFEST, measured | {"command": command})
    monkeypatch.setattr(results, "origin", lambda ctx: {})
    ctx: Any = SimpleNamespace(folder=tmp_path, config=settings, tasks=({}, []), teachers=["x"], teacher="x")
    made = results.results(ctx, asked)
    assert made is not None
    assert made["command"] == found
