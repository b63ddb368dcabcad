"""Builds a student from a teacher: fewer or narrower layers, narrower embeddings, or another family."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from distill.errors import ConfigError
from distill.models import families
from distill.models.families.head import architecture_of, names_of_class
from distill.models.families.record import TEXTS, VECTORS
from distill.models.student.shape import SIZES as SIZES
from distill.models.student.shape import check_layers as check_layers
from distill.models.student.shape import half_depth as half_depth
from distill.models.student.shape import heads_in_group, projects, setting
from distill.models.student.shape import initial_layers as initial_layers
from distill.models.student.shape import student_config as student_config
from distill.models.student.static import before_norm, counted, token_vectors, weighted
from distill.models.student.static import is_static as is_static
from distill.models.student.static import mean_tokenizer as mean_tokenizer
from distill.models.student.static import static_config as static_config
from distill.models.student.transfer import can_transfer, transfer
from distill.models.student.vocabulary import config_for as config_for
from distill.models.student.vocabulary import pieces as pieces
from distill.models.student.vocabulary import with_vocabulary as with_vocabulary
from distill.runtime import quoting

_INITS = ("teacher_layers", "random")


def from_teacher(
    model: Any,
    layers: Sequence[int],
    *,
    init: str,
    seed: int,
    dropout: float | None = None,
    family: str | None = None,
    sizes: Mapping[str, int | None] | None = None,
) -> Any:
    """A new student with `len(layers)` layers, in float32, on the teacher's device.

    Args:
        model: the teacher, a transformers language model or classifier; it is not changed.
        layers: the teacher's layers that the student starts from, counted from 0.
        init: `teacher_layers` copies these layers, the embeddings and the head (of another family, only the
            language-model head); `random` initializes all weights.
        seed: of the random initialization.
        dropout: probability of every dropout; None for the values in the config.
        family: of the student; None for the teacher's.
        sizes: see `student_config`.

    Raises:
        ConfigError: layers or sizes that the teacher or the family does not allow, and another `init`.
    """
    if init not in _INITS:
        raise ConfigError(
            f"student.init: got {init}; must be {' or '.join(_INITS)} for a student with layers; set one of them"
        )
    config = student_config(model.config, layers, family, sizes or {})
    if init == "teacher_layers":
        check_transfer(model.config, config)
    with _seeded(seed):
        student = _class(model, config)(config)
    if init == "teacher_layers":
        transfer(model, student, layers)
    if dropout is not None:
        set_dropout(student, dropout)
    return student.to(model.device)


@torch.no_grad()
def static(
    model: Any,
    tokenizer: Any,
    given: Any,
    *,
    around: tuple[list[int], list[int]],
    pooling: str,
    sizes: Mapping[str, int | None],
    seed: int,
) -> Any:
    """A static student of `model` (`distill.models.student.static`) in float32, on its device, with a new head of the
    same kind.

    Args:
        model: the teacher, a transformers language model, classifier or embedder; it is not changed.
        tokenizer: the student's, from `mean_tokenizer`.
        given: the teacher's tokenizer.
        around: the special tokens that `given` puts before and after a text.
        pooling: how the teacher makes one vector of the hidden states of a text: mean, cls or max.
        sizes: see `static_config`.
        seed: of the new head.
    """
    config = static_config(model.config, tokenizer, sizes)
    with _seeded(seed):
        made = _class(model, config)(config).float()
    vectors = token_vectors(model, pieces(tokenizer, given), around, given.pad_token_id, pooling)
    made.get_input_embeddings().weight.copy_(before_norm(weighted(vectors, counted(tokenizer), config.hidden_size)))
    return made.to(model.device)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Within the block, new weights are made on the CPU, with random numbers of a seed.

    `torch.manual_seed` would also seed the GPUs, on which a user trains: trainings of several seeds would have the same
    dropout.
    """
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(int(seed))
        yield


def with_rtd_head(model: Any, seed: int) -> Any:
    """A model with the encoder of `model` and a new head for replaced-token detection; `model` itself if it has one.

    Args:
        model: of a family that has such a head.
        seed: of the new head.
    """
    from transformers.models.auto import modeling_auto

    if families.has_rtd_head(model):
        return model
    with _seeded(seed):
        made = modeling_auto.MODEL_FOR_PRETRAINING_MAPPING[type(model.config)](model.config)
    families.encoder(made).load_state_dict(families.encoder(model).state_dict())
    return made.to(model.device)


def check_transfer(teacher: Any, student: Any) -> None:
    """Raise ConfigError if a student of config `student` cannot start from the weights of a teacher of config
    `teacher`."""
    errors = [f"{line}; or set student.init=random" for line in _misfits(teacher, student)]
    if errors:
        raise ConfigError(errors)


def _misfits(teacher: Any, student: Any) -> Iterator[str]:
    if not can_transfer(teacher.model_type, student.model_type):
        yield (
            f"student.init: got teacher_layers; must be random for a student of type {student.model_type}, whose "
            f"architecture has no place for the weights of type {teacher.model_type}; choose another student.family"
        )
        return
    for name in ("hidden_size", "intermediate_size"):
        size, largest = setting(student, name), setting(teacher, name)
        if size > largest:
            yield f"student.{name}: got {size}; must be <= {largest}, the teacher's; set a smaller value"
    head, own_head = (config.hidden_size // config.num_attention_heads for config in (teacher, student))
    if own_head != head:
        yield (
            f"student.num_attention_heads: got {student.num_attention_heads}, for heads of size {own_head}; must give "
            f"the teacher's head size, {head}; set {max(student.hidden_size // head, 1)}"
        )
    if heads_in_group(teacher) > 1 and student.num_attention_heads != teacher.num_attention_heads:
        yield (
            f"student.num_attention_heads: got {student.num_attention_heads}; must be {teacher.num_attention_heads}, "
            "the teacher's, because its heads share keys and values in groups; leave out the student's width and heads"
        )
    if projects(teacher):
        if not projects(student):
            family = quoting.setting("student.family", teacher.model_type)
            mend = "another width" if student.model_type == teacher.model_type else family
            yield (
                f"student.family: got {student.model_type} with embeddings as wide as its layers; must have a "
                f"projection after its embeddings, as the teacher has; set {mend}"
            )
        elif student.embedding_size != teacher.embedding_size:
            yield (
                f"student.embedding_size: got {student.embedding_size}; must be {teacher.embedding_size}, as in the "
                "teacher; leave it out"
            )
    elif projects(student) and student.embedding_size > student.hidden_size:
        yield (
            f"student.embedding_size: got {student.embedding_size}; must be <= {student.hidden_size}, the width of the "
            "layers; set a smaller value"
        )


def _class(model: Any, config: Any) -> Any:
    """The student's class: the teacher's, or in another family the class with the same kind of head."""
    from transformers.models.auto import modeling_auto

    architecture = architecture_of(names_of_class(model)) or TEXTS
    if config.model_type == model.config.model_type or architecture == VECTORS:
        return type(model)
    if families.has_mlm_head(model):
        return modeling_auto.MODEL_FOR_MASKED_LM_MAPPING[type(config)]
    return families.class_of(architecture)._model_mapping[type(config)]


def set_dropout(model: nn.Module, p: float) -> None:
    """Set every dropout of the model, also of the attention weights, to probability `p`.

    The config is not changed, so that a checkpoint keeps the model's own dropout.
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout):  # attention kernels take p from such a module
            module.p = p
        for name in ("attention_dropout", "activation_dropout", "dropout"):  # or from a plain number
            if type(getattr(module, name, None)) in (int, float):
                setattr(module, name, p)
