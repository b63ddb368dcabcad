"""What the training of a pruned student takes from how much it was compressed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from distill.compression.pruning.search import Shape
from distill.config import Batch, Limit, Prune, ScaleWithCompression, Train
from distill.config.plan import TEACHER, Source, Step
from distill.pipeline.train_steps.prepare import compression, learning_rate, total_steps


def prune(start: Source, name: str = "prune") -> Step:
    return Step(name, Prune(), sources={"start": (start,)})


def train(start: Source, teacher: Source = TEACHER) -> Step:
    return Step("train", Train(), sources={"start": (start,), "teacher": (teacher,)})


@pytest.fixture
def ctx(tmp_path: Path) -> Any:
    """A run with a teacher."""
    return SimpleNamespace(given=SimpleNamespace(teacher=str(tmp_path), key="teacher.name"), epochs={})


FINETUNED = Step("finetune_teacher", Train(role="teacher"), sources={"start": (TEACHER,)})


def compressed(ctx: Any, **settings: Any) -> tuple[Any, Step]:
    """A training of a pruned model with half the layers and a quarter of the FFN of its teacher."""
    config = '{"model_type": "bert", "num_hidden_layers": 6, "hidden_size": 64, "intermediate_size": 256}'
    folder = Path(ctx.given.teacher)
    (folder / "config.json").write_text(config)
    ctx.checkpoint = lambda source, task: folder
    ctx.tasks = {"a": None}
    ctx.folder = SimpleNamespace(result=lambda *_: SimpleNamespace(shape=Shape(layers=3, hidden=64, ffn=64)))
    ctx.config = SimpleNamespace(limit=Limit(steps=settings.pop("limit", None)), seed=0)
    return ctx, replace(train(prune(FINETUNED)), settings=Train(batch=Batch(tokens=64), **settings))


def test_cut_is_the_ratio_of_the_weights_of_the_layers(ctx: Any) -> None:
    ctx, step = compressed(ctx)
    assert compression(ctx, step) == pytest.approx(2 * (4 * 64 + 2 * 256) / (4 * 64 + 2 * 64))
    assert compression(ctx, train(TEACHER)) == 1


def test_cut_of_models_that_were_pruned_twice_is_over_the_unpruned_ones(ctx: Any) -> None:
    ctx, once = compressed(ctx)
    folder, sources = ctx.checkpoint(None, None), []
    ctx.checkpoint = lambda source, task: sources.append(source) or folder
    again = train(prune(once, "again"))
    assert compression(ctx, again) == compression(ctx, once) > 1
    assert {*sources} == {FINETUNED}


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"epochs": 2}, 20),
        ({"epochs": 2, "scale_with_compression": ScaleWithCompression(epochs=1)}, 80),
        ({"epochs": 2, "scale_with_compression": ScaleWithCompression(epochs=0.5)}, 40),
        ({"epochs": 2, "steps": 7}, 7),
        ({"epochs": 2, "steps": 7, "limit": 4}, 4),
        ({"epochs": 2, "limit": 4}, 4),
        ({"epochs": 2, "min_steps": 30}, 30),
    ],
)
def test_steps_follow_from_rows_and_cut(settings: dict[str, Any], steps: int, ctx: Any) -> None:
    assert total_steps(*compressed(ctx, **settings), np.full(80, 8)) == steps


@pytest.mark.parametrize("settings", [{"epochs": 2}, {"epochs": 1, "min_steps": 20}])
def test_a_target_that_the_budget_is_not_enough_for_is_trained_for_fewer_epochs(
    settings: dict[str, Any], ctx: Any
) -> None:
    ctx, step = compressed(ctx, **settings)
    ctx.epochs[step.target] = 0.5
    assert total_steps(ctx, step, np.full(80, 8)) == 10
    ctx.epochs = {"another target": 0.5}
    assert total_steps(ctx, step, np.full(80, 8)) == 20


def test_learning_rate_follows_from_width_and_cut(ctx: Any) -> None:
    ctx, step = compressed(ctx, base_lr=1e-4, scale_with_compression=ScaleWithCompression(lr=0.5), optimizer={})
    assert learning_rate(ctx, step) == pytest.approx(1e-4 * 384 / 64 * 2)
    assert learning_rate(ctx, replace(step, settings=replace(step.settings, optimizer={"lr": 3e-4}))) == 3e-4
