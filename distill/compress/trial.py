"""What pruned models recover by brief distillation: how the best of several shapes is found.

Loss after a cut, and even after a few steps of training, predicts recovered loss badly, and is measured for one
dimension at a time. So the shapes with the least estimated loss are tried: models are cut to them, distilled for a few
hundred steps, and compared on rows that they were not trained on. After Minitron (Muralidharan et al. 2024, arXiv
2407.14679, section 2.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from distill import losses
from distill.compress.importance import Batch
from distill.compress.search import Shape
from distill.compress.sensitivity import Sensitivity, Subject, autocast, cut, retrained
from distill.config.stages import BASE_WIDTH
from distill.features import outputs_of
from distill.losses.precision import working
from distill.student.shape import setting

TEMPERATURE = 2.0
"""Of the soft targets."""

RATE = 4e-4
"""Peak learning rate for a model of width 384."""


def trial_loss(
    subject: Subject, measured: Sensitivity, shape: Shape, examples: int, steps: int, precision: str
) -> float:
    """The log of the loss to the outputs of a task's unpruned model, of a model that was cut to a shape and distilled.

    The loss is on at most `examples` training rows, the distillation on others. A log, so that the mean over tasks does
    not depend on the scale of their losses.
    """
    model, rows = subject.model, subject.data.task.kind.rows

    def taught(batches: Sequence[Batch]) -> list[Batch]:
        with torch.no_grad(), autocast(model, precision):
            return [batch | {"taught": rows(working(outputs_of(model, batch)))} for batch in batches]

    def loss(student: Any, batch: Batch) -> Tensor:
        inputs = {key: value for key, value in batch.items() if key != "taught"}
        with autocast(student, precision):
            outputs = rows(working(outputs_of(student, inputs)))
        return losses.soft_targets(outputs, batch["taught"], temperature=TEMPERATURE)

    judged, lessons = taught(subject.sample(examples)), taught(subject.sample(examples, then=steps))
    width = int(setting(model.config, "hidden_size"))
    small = cut(model, measured.layers[shape.layers], measured.scores, shape.hidden, shape.ffn)
    small = retrained(small, lessons, loss, steps, RATE * BASE_WIDTH / width)
    with torch.no_grad():
        values = torch.cat([loss(small, batch).float() for batch in judged])
    return math.log(max(values.mean().item(), 1e-9))
