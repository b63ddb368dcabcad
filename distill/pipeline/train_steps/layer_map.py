"""Which layers and channels of its teacher a student was copied from, and the cut of one model for all tasks."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from distill.compression.pruning.importance import Importance
from distill.compression.pruning.search import Shape
from distill.compression.pruning.select_kept import top
from distill.compression.pruning.sensitivity import Sensitivity, cut
from distill.config import Student
from distill.config.plan import Given, Step
from distill.data.task_model import load_for
from distill.data.tasks import TaskData
from distill.models import families, teacher
from distill.models.student import initial_layers


@dataclass(frozen=True)
class Origin:
    """Where the parts of a student were copied from."""

    layers: list[int] | None = None
    """For each layer of the student, the teacher's, counted from 0; None if they are not known."""
    channels: list[int] | None = None
    """For each hidden channel of the student, the teacher's; None if they are not known."""


UNKNOWN = Origin()
"""The origin of a student of which no part was copied from its teacher."""


def origin(step: Step, student: Student | None, depth: Callable[[], int], kept: Callable[[Step], Origin]) -> Origin:
    """The parts of a step's teacher that its student was copied from.

    `UNKNOWN` if the student's layers were not copied (random or given), if its teacher is a student or pruned itself,
    or if the student was pruned before it was built, or more than once and built.

    Args:
        student: by which students are built; None for a given one.
        depth: returns the number of layers of the given teacher.
        kept: returns what a step that cuts models kept of them.
    """
    source, builder, cutter = step.teacher, step.builder, step.cutter
    unpruned = isinstance(source, Given) or (source is not None and not source.of_student and not source.cutter)
    if student is None or student.init != "teacher_layers" or not unpruned or (builder is None and cutter is None):
        return UNKNOWN
    changes = [other for other in step.ancestors if other is builder or other.cutter is other]
    if builder is None:
        return functools.reduce(_of, map(kept, reversed(changes)))
    if changes not in ([builder], [cutter, builder]):  # the latest first
        return UNKNOWN
    layers = None if cutter is None else kept(cutter).layers
    built = initial_layers(student, depth())
    return Origin(built if layers is None else [built[number] for number in layers])


def _of(first: Origin, second: Origin) -> Origin:
    """The origin of a model that was cut twice."""

    def composed(before: list[int] | None, after: list[int] | None) -> list[int] | None:
        return None if before is None or after is None else [before[number] for number in after]

    return Origin(composed(first.layers, second.layers), composed(first.channels, second.channels))


@dataclass(frozen=True)
class Average:
    """The parts to keep of one model for all tasks."""

    shape: Shape
    layers: list[int]
    scores: Importance

    @property
    def origin(self) -> Origin:
        """What is kept of each model that is cut so."""
        return Origin(self.layers, top(self.scores.hidden, self.shape.hidden).tolist())


def averaged(shape: Shape, measured: Sequence[Sensitivity]) -> Average:
    """What one model of a shape keeps, by the measurements of each task's model: importances are averaged.

    Scores are divided by their sum, so that tasks count alike. The layers are kept that the tasks' models lose last.
    """
    return Average(shape, kept_longest(measured, shape.layers), mean_scores([each.scores for each in measured]))


def kept_longest(measured: Sequence[Sensitivity], count: int) -> list[int]:
    """The `count` layers that are among those kept for the most numbers of layers, summed over tasks; ascending."""
    votes = Counter(layer for each in measured for layers in each.layers.values() for layer in layers)
    return sorted(sorted(votes, key=lambda layer: (-votes[layer], layer))[:count])


def mean_scores(scores: list[Importance]) -> Importance:
    """The mean of several models' scores, each divided by its sum."""

    def mean(kind: str) -> torch.Tensor:
        parts = [getattr(each, kind) for each in scores]
        return torch.stack([part / part.sum().clamp(min=1e-12) for part in parts]).mean(0)

    return Importance(mean("heads"), mean("ffn"), mean("hidden"))


def cut_for_all(average: Average, model: Any) -> Any:
    """The model cut to the shape that one model for all tasks has. Weights are not refitted."""
    return cut(model, average.layers, average.scores, average.shape.hidden, average.shape.ffn)


def with_head(average: Average, data: TaskData, whole: Path, folder: Path, pad_id: int) -> Any:
    """The model of a task with the encoder in `folder`, which was cut for all tasks, and the head, cut to the same
    channels, of the task's uncut model in the folder `whole`."""
    model = cut_for_all(average, load_for(data.task, whole, pad_id=pad_id))
    trained, _ = teacher.load_mlm(folder)
    lost = families.encoder(model).load_state_dict(families.encoder(trained).state_dict(), strict=False)
    assert not lost.unexpected_keys, lost  # language models have no pooler, so that keys may be missing
    return model
