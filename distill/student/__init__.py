"""Building a student out of a teacher: fewer layers, narrower ones, smaller embeddings, or another family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from distill import family
from distill.errors import ConfigError
from distill.student.shape import SIZES, check_layers, half_depth, projects, setting, student_config
from distill.student.transfer import can_transfer, transfer
from distill.student.vocabulary import config_for, pieces, with_vocabulary

__all__ = [
    "SIZES",
    "check_layers",
    "check_transfer",
    "config_for",
    "from_teacher",
    "half_depth",
    "pieces",
    "set_dropout",
    "student_config",
    "with_vocabulary",
]


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
    teacher's `layers` (numbers from 0), embeddings and head (in another family the language-model head alone); with
    `random` all of it is drawn from `seed`. Raises ConfigError for what the teacher or the family cannot give.
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
    errors = [f"{line}; or set student.init=random" for line in _misfits(teacher, student)]
    if errors:
        raise ConfigError(errors)


def _misfits(teacher: Any, student: Any) -> Iterator[str]:
    one, other = teacher.model_type, student.model_type
    if not can_transfer(one, other):
        yield (
            f"student.init: got teacher_layers; must be random for a student of type {other}, which computes otherwise "
            f"than the teacher, of type {one}; choose another student.family"
        )
        return
    for name in ("hidden_size", "intermediate_size"):
        got, most = setting(student, name), setting(teacher, name)
        if got > most:
            yield f"student.{name}: got {got}; must be <= {most}, the teacher's; set less"
    size, own = (config.hidden_size // config.num_attention_heads for config in (teacher, student))
    if own != size:
        yield (
            f"student.num_attention_heads: got {student.num_attention_heads}, heads of {own}; must leave heads their "
            f"size, {size}; set {max(student.hidden_size // size, 1)}"
        )
    if projects(teacher):
        if not projects(student):
            yield (
                f"student.family: got {other} with embeddings as wide as its layers; must have a place for what the "
                f"teacher projects its embeddings with; set student.family={one}"
            )
        elif student.embedding_size != teacher.embedding_size:
            yield (
                f"student.embedding_size: got {student.embedding_size}; must be {teacher.embedding_size}, as in the "
                "teacher; leave it out"
            )
    elif projects(student) and student.embedding_size > student.hidden_size:
        yield (
            f"student.embedding_size: got {student.embedding_size}; must be <= {student.hidden_size}, the width of the "
            "layers; set less"
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
        for name in ("attention_dropout", "activation_dropout", "dropout"):  # or from a plain number
            if type(getattr(module, name, None)) in (int, float):
                setattr(module, name, p)
