"""The model of a task: an encoder with a head for its labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from distill.data.labels import head_order
from distill.data.task import Task
from distill.models import families, teacher
from distill.models.families.head import stored_head


def load_for(task: Task, path: str | Path, pooler: str | Path | None = None, pad_id: int | None = None) -> Any:
    """A model with the task's labels as its outputs, on the encoder of a folder, as from `teacher.load_classifier`.

    Outputs of a stored head whose labels are in another order are put in the order of the task.
    """
    task_type = task.kind
    model = teacher.load_classifier(
        path, task.outputs, pooler, pad_id, problem=task_type.problem, architecture=task_type.architecture
    )
    head = stored_head(path)
    order = None if head is None else head_order(head, task)
    if order is not None and list(order) != sorted(order):
        _reorder(model.get_submodule(families.head_of(model)), order)
    if task.labels:
        model.config.id2label = dict(enumerate(task.labels))
        model.config.label2id = {label: number for number, label in enumerate(task.labels)}
    return model


@torch.no_grad()
def _reorder(head: Any, order: Sequence[int]) -> None:
    """Put the outputs of a linear layer in another order, in place."""
    for parameter in head.parameters():
        parameter.copy_(parameter[list(order)].clone())
