"""Building a student out of a teacher: fewer layers, narrower ones, smaller embeddings, or another family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from distill import family
from distill.config import ConfigError
from distill.student.shape import SIZES, check_layers, half_depth, student_config
from distill.student.transfer import can_transfer, transfer

__all__ = ["SIZES", "check_layers", "check_transfer", "from_teacher", "half_depth", "set_dropout", "student_config"]


def from_teacher(
    model: Any,
    layers: Sequence[int],
    *,
    init: str,
    seed: int,
    dropout: float | None = None,
    kind: str | None = None,
    sizes: Mapping[str, int | None] | None = None,
) -> Any:
    """A student with `len(layers)` layers, float32, on the teacher's device.

    `model` is a transformers language model or classifier; it is left as it was. The student is of family `kind` (the
    teacher's when None), its `sizes` are those of `student_config`. With init `teacher_layers` it starts from the
    teacher's `layers` (numbers from 0), embeddings and head; with `random` all of it is drawn from `seed`. Raises
    ConfigError for what the teacher or the family cannot give.
    """
    config = student_config(model.config, layers, kind, sizes or {})
    if init == "teacher_layers":
        check_transfer(model.config, config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        student = _class(model, config)(config)
    if init == "teacher_layers":
        transfer(model, student, layers)
    if dropout is not None:
        set_dropout(student, dropout)
    return student.to(model.device)


def check_transfer(teacher: Any, student: Any) -> None:
    """ConfigError when a student of this config cannot start from the weights of a teacher of that."""
    one, other = teacher.model_type, student.model_type
    if not can_transfer(one, other):
        raise ConfigError(
            f"student.init: got teacher_layers; must be random for a student of type {other}, which computes otherwise "
            f"than the teacher, of type {one}; set student.init=random"
        )
    wider = [name for name in SIZES if getattr(student, name, 0) > getattr(teacher, name, student.hidden_size)]
    if "hidden_size" in wider or "num_attention_heads" in wider:
        raise ConfigError(
            f"student.{wider[0]}: got {getattr(student, wider[0])}; must be <= {getattr(teacher, wider[0])}, the "
            "teacher's; set less, or student.init=random"
        )


def _class(model: Any, config: Any) -> Any:
    """The student's class: the teacher's, or that of the same head in another family."""
    from transformers.models.auto import modeling_auto

    if config.model_type == model.config.model_type:
        return type(model)
    masked = family.has_mlm_head(model)
    table = (
        modeling_auto.MODEL_FOR_MASKED_LM_MAPPING if masked else modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING
    )
    return table[type(config)]


def set_dropout(model: nn.Module, p: float) -> None:
    """Set every dropout of the model to probability `p`, that of the attention weights too.

    The config is left alone, so that a checkpoint keeps the model's own dropout.
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout):  # the attention kernels read p from such a module too
            module.p = p
        elif isinstance(getattr(module, "attention_dropout", None), float):  # or from a plain number
            module.attention_dropout = p  # type: ignore[assignment]
