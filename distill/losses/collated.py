"""Batches as collators of transformers return them, in the form in which the training loss takes them.

A collator pads all texts of a batch to one length, and gives the label -100 to what has no label. The loss takes the
positions of the tokens, and the numbers of the rows that have a label.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from distill.data.task_types import MISSING, TASK_TYPES, TaskType, kind_of_model
from distill.errors import ConfigError, DataError
from distill.models import families
from distill.models.families.head import REGRESSION, SEVERAL, architecture_of, names_of_class
from distill.models.families.record import ANSWERS, CHOICES, TEXTS, TOKENS

Batch = dict[str, Tensor]

_DIMENSIONS = {TEXTS: 2, TOKENS: 2, ANSWERS: 2, CHOICES: 3}
"""Architecture -> number of dimensions of `input_ids`."""

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""Inputs of models that the loss passes on."""

_OTHERS = ("inputs_embeds", "position_ids", "decoder_input_ids", "decoder_attention_mask")
"""Inputs of models that the loss does not pass on."""


LABELS = ("labels", "label", "start_positions", "end_positions")
"""Names of labels in a batch."""


def kind_of(model: nn.Module, name: str = "student") -> TaskType | None:
    """The kind of task that a model of transformers has a head for; None for a masked language model.

    `name` is that of the argument, for messages.

    Raises:
        ConfigError: for a model with another head, or without one.
    """
    architecture = architecture_of(names_of_class(model))
    config: Any = getattr(model, "config", None)
    known = hasattr(config, "model_type")  # else it is no model of transformers
    if known and architecture in _DIMENSIONS:
        return kind_of_model(config.problem_type, config.num_labels, architecture)
    if known and families.has_mlm_head(model):
        return None
    raise ConfigError(
        f"{name}: got a {type(model).__name__}; must be a model with a head: AutoModelForMaskedLM, or AutoModelFor "
        "SequenceClassification, TokenClassification, MultipleChoice or QuestionAnswering; load it as one of these"
    )


def kind_named(name: str, found: TaskType | None, outputs: int) -> TaskType:
    """The kind of task of this name, for a model of which `kind_of` finds another that has the same head.

    Raises:
        ConfigError: for an unknown kind, and for one whose models have another head or number of outputs.
    """
    alike = [kind.name for kind in TASK_TYPES.values() if found is not None and _has_head(kind, found, outputs)]
    if name not in alike:
        known = " or ".join(alike) or "None"
        raise ConfigError(
            f"kind: got {name}; must be {known} for a model with this head and {outputs} outputs; choose another"
        )
    return TASK_TYPES[name]


def _has_head(kind: TaskType, found: TaskType, outputs: int) -> bool:
    """Whether models of a kind have the head of a model of which `found` is known, and its number of outputs."""
    if kind.architecture != found.architecture or kind.architecture != TEXTS:
        return kind.architecture == found.architecture
    if kind.named:
        return outputs > 1 or kind.problem == SEVERAL  # one output is a number, or the one label of several
    return outputs == kind.outputs


def batch_of(kind: TaskType | None, outputs: int, batch: Mapping[str, Tensor]) -> Batch:
    """A batch for `Objective`, from a batch with `input_ids` [B, L] ([B, choices, L] of multiple choice),
    `attention_mask`, which is all ones if it is left out, and:

    - `labels` with -100 where there is no label: class numbers [B], numbers [B], 0 and 1 [B, labels], or class numbers
      of tokens [B, L]. Of question answering, `start_positions` and `end_positions` [B]; an answer at another position
      than those of the batch does not count. Without labels, terms against labels are 0.
    - `teacher_logits`, in place of a teacher: outputs of the shape of the model's own, but not of question answering
      and masked language modelling.

    Args:
        kind: as from `kind_of` or `kind_named`. Its `problem` tells what the labels of texts are, and its
            `loss_targets` makes the labels of rows of them.
        outputs: number of the model's outputs.

    Raises:
        DataError: for tensors of other shapes or types.
    """
    if "label" in batch and "labels" not in batch:
        batch = {"labels" if name == "label" else name: values for name, values in batch.items()}
    if "input_ids" not in batch:
        raise DataError("batch: got no input_ids; must have them; pass what a collator of transformers returns")
    ids = batch["input_ids"]
    dimensions = 2 if kind is None else _DIMENSIONS[kind.architecture]
    if ids.ndim != dimensions:
        raise DataError(
            f"batch: got input_ids of shape {[*ids.shape]}; must have {dimensions} dimensions for "
            f"{'a masked language model' if kind is None else kind.name}; use the collator of that task"
        )
    if ignored := [name for name in _OTHERS if name in batch]:
        raise DataError(f"batch: got {ignored[0]}; must be left out, as it would not be used; pass input_ids alone")
    inputs = {name: _shaped(name, batch[name], ids.shape) for name in INPUTS if name in batch}
    inputs.setdefault("attention_mask", torch.ones_like(ids))
    inputs = {name: values.reshape(-1, ids.shape[-1]) for name, values in inputs.items()}
    inputs["real"] = inputs["attention_mask"].flatten().nonzero().squeeze(1)
    if kind is None:
        return inputs | _masked(batch)
    return inputs | _OF_ARCHITECTURE[kind.architecture](kind, batch, inputs["real"], outputs)


def _masked(batch: Mapping[str, Tensor]) -> Batch:
    """The masked tokens of a language model, which are the tokens with a label."""
    _without_stored(batch, "masked language modelling")
    labels = _labels(batch, batch["input_ids"].shape, MISSING).flatten()
    masked = (labels != MISSING).nonzero().squeeze(1)
    return {"masked": masked, "labels": labels[masked]}


def _classes(batch: Mapping[str, Tensor], outputs: int) -> Tensor:
    labels = _labels(batch, (len(batch["input_ids"]),), MISSING)
    if labels.is_floating_point():
        raise DataError(
            "labels: got numbers with a fraction; must be class numbers; set problem_type of the model's config to "
            "multi_label_classification, or num_labels to 1 for a regression"
        )
    return labels


def _numbers(batch: Mapping[str, Tensor], outputs: int) -> Tensor:
    given = batch.get("labels")
    column = {} if given is None else {"labels": given.squeeze(-1) if given.ndim == 2 else given}
    found = _labels({**batch, **column}, (len(batch["input_ids"]),), torch.nan).float()
    return found.masked_fill(found == MISSING, torch.nan)


def _flags(batch: Mapping[str, Tensor], outputs: int) -> Tensor:
    labels = _labels(batch, (len(batch["input_ids"]), outputs), MISSING)
    if labels.is_floating_point() and bool((labels != labels.round()).any()):
        raise DataError(
            "labels: got numbers with a fraction; must be 0 or 1 for each label; pass soft labels as teacher_logits, "
            "their log-odds"
        )
    return labels.long()


_OF_PROBLEM = {REGRESSION: _numbers, SEVERAL: _flags}
"""`TaskType.problem` -> function of (batch, number of outputs) for the labels of texts; `_classes` for any other."""


def _texts(kind: TaskType, batch: Mapping[str, Tensor], real: Tensor, outputs: int) -> Batch:
    labels = _OF_PROBLEM.get(kind.problem or "", _classes)(batch, outputs)
    return _labelled(kind, labels) | _learned(batch, (len(labels), outputs))


def _tokens(kind: TaskType, batch: Mapping[str, Tensor], real: Tensor, outputs: int) -> Batch:
    """Rows are the tokens with a label; of a batch without labels, all tokens."""
    shape = batch["input_ids"].shape
    if "labels" in batch:
        flat = _labels(batch, shape, MISSING).flatten()
        words = (flat != MISSING).nonzero().squeeze(1)
        parts = {"words": words, "labels": flat[words]}
    else:
        parts = {"words": real, "labels": torch.zeros_like(real), "labelled": real[:0]}
    learned = _learned(batch, (*shape, outputs))
    return parts | {name: values.flatten(0, 1)[parts["words"]] for name, values in learned.items()}


def _choices(kind: TaskType, batch: Mapping[str, Tensor], real: Tensor, outputs: int) -> Batch:
    count, most = batch["input_ids"].shape[:2]
    groups = torch.arange(count * most, device=real.device).view(count, most)
    return {"groups": groups} | _labelled(kind, _classes(batch, most)) | _learned(batch, (count, most))


def _answers(kind: TaskType, batch: Mapping[str, Tensor], real: Tensor, outputs: int) -> Batch:
    """Rows are the starts and the ends of the answers, in turn. Every token may be one."""
    _without_stored(batch, "question answering")
    ids = batch["input_ids"]
    mask = batch.get("attention_mask", torch.ones_like(ids))
    none = torch.full((len(ids),), MISSING, device=ids.device)
    both = [_shaped(name, batch.get(name, none).view(-1), (len(ids),)) for name in ("start_positions", "end_positions")]
    labels = torch.stack(both, dim=1)
    return {"places": mask} | _labelled(kind, labels.masked_fill((labels < 0) | (labels >= ids.shape[1]), MISSING))


_OF_ARCHITECTURE = {TEXTS: _texts, TOKENS: _tokens, ANSWERS: _answers, CHOICES: _choices}
"""Architecture -> function of (kind of task, batch, flat positions of all tokens, number of the model's outputs)."""


def _labels(batch: Mapping[str, Tensor], shape: tuple[int, ...], missing: float) -> Tensor:
    """The labels of a batch; `missing` for all rows of a batch without labels."""
    given = batch.get("labels")
    none = torch.full(shape, missing, device=batch["input_ids"].device)
    return none if given is None else _shaped("labels", given, shape)


def _labelled(kind: TaskType, labels: Tensor) -> Batch:
    """The labels of all rows [R] that the kind makes of them, and the numbers of the rows that have one. 0 stands where
    there is none."""
    rows = torch.from_numpy(kind.loss_targets(labels.detach().cpu().numpy())).to(labels.device)
    given = ~rows.isnan() if rows.is_floating_point() else rows != MISSING
    return {"labels": rows.masked_fill(~given, 0), "labelled": given.nonzero().squeeze(1)}


def _learned(batch: Mapping[str, Tensor], shape: tuple[int, ...]) -> Batch:
    """The stored outputs of the teacher."""
    if "teacher_logits" not in batch:
        return {}
    return {"teacher_logits": _shaped("teacher_logits", batch["teacher_logits"], shape)}


def _without_stored(batch: Mapping[str, Tensor], work: str) -> None:
    if "teacher_logits" in batch:
        raise DataError(f"batch: got teacher_logits; must be left out of {work}; pass the teacher itself")


def _shaped(name: str, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    if values.shape != shape:
        raise DataError(
            f"batch: got {name} of shape {[*values.shape]}; must be {[*shape]}; use the collator of this task"
        )
    return values
