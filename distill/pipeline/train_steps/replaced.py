"""The teacher within which the layers of a student are trained."""

from __future__ import annotations

from typing import Any

from distill.config import Train
from distill.data.task_model import load_for
from distill.data.tasks import TaskData
from distill.models.student.replacing import Replacing
from distill.pipeline.train_steps.inputs import MemberInputs


def replacing(model: Any, inputs: MemberInputs, settings: Train, data: TaskData, steps: int) -> Replacing | None:
    """Runs the student `model` of a task within its teacher. None in a stage that replaces no layers.

    steps: number of steps of the training.
    """
    if settings.replacing is None:
        return None
    assert inputs.teacher is not None
    folder, pad_id = inputs.teacher.models.folder(data.task.name), inputs.tokenizer.pad_token_id
    # In float32: arithmetic in bf16 rounds its weights as it rounds those of the student's layers among them.
    teacher = load_for(data.task, folder, pad_id=pad_id).to(model.device)
    return Replacing(model, teacher, rate=settings.replacing, seed=inputs.seed, total=steps)
