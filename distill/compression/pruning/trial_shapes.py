"""Finds the best of several shapes by what pruned models recover in a brief distillation.

Loss after a cut, and even after a few steps of training, predicts recovered loss badly, and is measured for one
dimension at a time. So the shapes with the least estimated loss are tried: models are cut to them, distilled for a few
hundred steps, and compared on rows that they were not trained on. After Minitron (Muralidharan et al. 2024, arXiv
2407.14679, section 2.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from distill import losses
from distill.compression.pruning.importance import Batch
from distill.compression.pruning.search import Shape
from distill.compression.pruning.select_kept import mean_loss
from distill.compression.pruning.sensitivity import Sensitivity, Subject, autocast, cut, retrained
from distill.compression.pruning.target import shape_of
from distill.config.stages import BASE_WIDTH
from distill.models import families
from distill.models.hooks import outputs_of
from distill.runtime.precision import working

TEMPERATURE = 2.0
"""Temperature of the soft targets."""

RATE = 4e-4
"""Peak learning rate for a model of width 384."""

LESSONS = 500
"""Maximum batches of training rows in a trial; they are repeated where it has more steps."""

LEAST = 1e-9
"""Lower bound of a loss, so that its logarithm is finite."""


@dataclass(frozen=True)
class Trial:
    """The rows on which pruned models of a task are distilled and judged."""

    subject: Subject
    measured: Sensitivity
    lessons: Sequence[Batch]
    judged: Sequence[Batch]
    """Rows that are not in `lessons`."""
    steps: int
    """Steps of a model of the unpruned size."""
    precision: str

    def loss(self, shape: Shape) -> float:
        """The log of the loss of a model that was cut to a shape and distilled, to the outputs of the unpruned model.

        A log, so that the mean over tasks does not depend on the scale of their losses. A model with an eighth of the
        weights gets eight times as many steps, which takes as long: after few steps small models have recovered
        nothing, and models that kept the most channels seem the best. Weights are not refitted after the cut.
        """
        model, measured = self.subject.model, self.measured
        small = cut(model, measured.layers[shape.layers], measured.scores, shape.hidden, shape.ffn)
        rate = RATE * BASE_WIDTH / families.width(model)
        steps = round(self.steps * shape_of(model.config).weights / shape.weights)
        small = retrained(small, self.lessons, self._loss, steps, rate)
        return math.log(max(mean_loss(small, self.judged, self._loss), LEAST))

    def _loss(self, student: Any, batch: Batch) -> Tensor:
        with autocast(student, self.precision):
            outputs = self.subject.data.task.kind.rows(working(outputs_of(student, batch)))
        return losses.soft_targets(outputs, batch["teacher_logits"], temperature=TEMPERATURE)


def trial(subject: Subject, measured: Sensitivity, examples: int, steps: int, precision: str) -> Trial:
    """A trial of `steps` steps for a model of the unpruned size, judged on at most `examples` training rows."""
    lessons = subject.sample(examples, then=LESSONS)
    rows = subject.data.task.kind.rows

    @torch.no_grad()
    def taught(batches: Sequence[Batch]) -> list[Batch]:
        with autocast(subject.model, precision):
            return [batch | {"teacher_logits": rows(working(outputs_of(subject.model, batch)))} for batch in batches]

    return Trial(subject, measured, taught(lessons), taught(subject.sample(examples)), steps, precision)
