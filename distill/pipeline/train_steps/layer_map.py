"""Which layers and channels of its teacher a student was copied from, and the cut of one model for all tasks."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from distill.compression.pruning.importance import Importance
from distill.compression.pruning.search import Shape
from distill.compression.pruning.select_kept import top
from distill.compression.pruning.sensitivity import Sensitivity, cut, read
from distill.config.plan import Given, Step
from distill.data.task_model import load_for
from distill.data.tasks import TaskData
from distill.models import families, student, teacher
from distill.pipeline.artefacts import Pruned
from distill.pipeline.context import Context


@dataclass(frozen=True)
class Origin:
    """Where the parts of a student were copied from."""

    layers: list[int] | None = None
    """For each layer of the student, the teacher's, counted from 0; None if they are not known."""
    channels: list[int] | None = None
    """For each hidden channel of the student, the teacher's; None if they are not known."""


UNKNOWN = Origin()
"""The origin of a student of which no part was copied from its teacher."""


def origin(ctx: Context, step: Step, task: str | None) -> Origin:
    """The parts of a step's teacher that its student was copied from.

    `UNKNOWN` if the student's layers were not copied (random or given), if its teacher is a student or pruned itself,
    or if the student was pruned before it was built, or more than once and built.
    """
    source, builder, cutter = step.teacher, step.builder, step.cutter
    unpruned = isinstance(source, Given) or (source is not None and not source.of_student and not source.cutter)
    copied = ctx.config.student.init == "teacher_layers" and not ctx.plan.given_student
    if not unpruned or not copied or (builder is None and cutter is None):
        return UNKNOWN
    changes = [other for other in step.ancestors if other is builder or other.cutter is other]
    if builder is None:
        return functools.reduce(_of, (_kept(ctx, each, task) for each in reversed(changes)))
    if changes not in ([builder], [cutter, builder]):  # the latest first
        return UNKNOWN
    kept = UNKNOWN if cutter is None else _kept(ctx, cutter, task)
    depth = int(teacher.read_config(ctx.given.teacher, ctx.given.key).num_hidden_layers)
    built = student.initial_layers(ctx.config.student, depth)
    return Origin(built if kept.layers is None else [built[number] for number in kept.layers])


def _of(first: Origin, second: Origin) -> Origin:
    """The origin of a model that was cut twice."""

    def composed(before: list[int] | None, after: list[int] | None) -> list[int] | None:
        return None if before is None or after is None else [before[number] for number in after]

    return Origin(composed(first.layers, second.layers), composed(first.channels, second.channels))


def _kept(ctx: Context, cutter: Step, task: str | None) -> Origin:
    """The layers and channels that a step kept of the models that it cut, or cuts."""
    if cutter.source("shape_of") is not None:
        average = averaged(ctx, cutter)
        return Origin(average.layers, top(average.scores.hidden, average.shape.hidden).tolist())
    tasks = ctx.folder.result(cutter, Pruned).tasks
    cut = next(iter(tasks.values())) if task is None else tasks[task]
    return Origin(cut.layers, cut.hidden)


@dataclass(frozen=True)
class Average:
    """The parts to keep of one model for all tasks."""

    shape: Shape
    layers: list[int]
    scores: Importance


def averaged(ctx: Context, step: Step) -> Average:
    """The shape that the prune step of a step chose, and the importances that it measured, averaged over the tasks.

    Scores are divided by their sum, so that tasks count alike. The layers are kept that the tasks' models lose last.
    """
    pruner = step.pruner
    assert pruner is not None
    shape = ctx.folder.result(pruner, Pruned).shape
    measured = [read(ctx.folder.measured(pruner) / task) for task in ctx.tasks]
    return Average(shape, kept_longest(measured, shape.layers), mean_scores([each.scores for each in measured]))


def kept_longest(measured: list[Sensitivity], count: int) -> list[int]:
    """The `count` layers that are among those kept for the most numbers of layers, summed over tasks; ascending."""
    votes: dict[int, int] = {}
    for each in measured:
        for layers in each.layers.values():
            for layer in layers:
                votes[layer] = votes.get(layer, 0) + 1
    return sorted(sorted(votes, key=lambda layer: (-votes[layer], layer))[:count])


def mean_scores(scores: list[Importance]) -> Importance:
    """The mean of several models' scores, each divided by its sum."""

    def mean(kind: str) -> torch.Tensor:
        parts = [getattr(each, kind) for each in scores]
        return torch.stack([part / part.sum().clamp(min=1e-12) for part in parts]).mean(0)

    return Importance(mean("heads"), mean("ffn"), mean("hidden"))


def cut_for_all(ctx: Context, step: Step, model: Any) -> Any:
    """The model cut to the shape of the prune step that a step names in `shape_of`. Weights are not refitted."""
    average = averaged(ctx, step)
    return cut(model, average.layers, average.scores, average.shape.hidden, average.shape.ffn)


def with_head(ctx: Context, cutter: Step, data: TaskData, folder: Path, pad_id: int) -> Any:
    """The model of a task with the encoder in `folder`, which `cutter` cut for all tasks, and the head, cut to the same
    channels, of the task's model that the prune step measured."""
    pruner = cutter.pruner
    assert pruner is not None
    whole = load_for(data.task, ctx.checkpoint(pruner.start, data.task.name), pad_id=pad_id)
    model = cut_for_all(ctx, cutter, whole)
    trained, _ = teacher.load_mlm(folder)
    lost = families.encoder(model).load_state_dict(families.encoder(trained).state_dict(), strict=False)
    assert not lost.unexpected_keys, lost  # language models have no pooler, so that keys may be missing
    return model
