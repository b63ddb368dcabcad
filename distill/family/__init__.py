"""The only place that knows model families: one record for each, and the few questions asked of it.

A new family is one file with a `Family`, its name in `FAMILIES` and one row in the contract test.
"""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn

from distill.config import ConfigError
from distill.family.bert import BERT
from distill.family.distilbert import DISTILBERT
from distill.family.record import Family
from distill.family.roberta import ROBERTA

__all__ = [
    "FAMILIES",
    "Family",
    "encode",
    "encoder",
    "family_of",
    "freeze_mlm_head",
    "has_mlm_head",
    "inputs",
    "layers",
    "max_length",
    "mlm_logits",
]

FAMILIES: dict[str, Family] = {family.name: family for family in (BERT, DISTILBERT, ROBERTA)}


def family_of(model_or_config: Any) -> Family:
    """The record of a transformers model or config. ConfigError when the family is not known."""
    kind = getattr(model_or_config, "config", model_or_config).model_type
    if kind not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise ConfigError(f"teacher.name: got a model of type {kind}; must be one of {known}; choose such a teacher")
    return FAMILIES[kind]


def encoder(model: nn.Module) -> nn.Module:
    """The encoder of a model with a head."""
    return model.get_submodule(family_of(model).encoder)


def layers(model: nn.Module) -> nn.ModuleList:
    """The layers of a model with a head, first to last."""
    return cast(nn.ModuleList, encoder(model).get_submodule(family_of(model).layers))


def inputs(model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The part of `batch` that the model takes (labels and foreign token types are left out)."""
    return {name: batch[name] for name in family_of(model).inputs if name in batch}


def encode(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Last hidden state [B, L, H] for `input_ids` and `attention_mask` [B, L]. No head is run."""
    return cast(Tensor, encoder(model)(**inputs(model, batch)).last_hidden_state)


def has_mlm_head(model: nn.Module) -> bool:
    """Whether the model can answer `mlm_logits`."""
    return hasattr(model, family_of(model).mlm_head[0])


def mlm_logits(model: nn.Module, hidden: Tensor) -> Tensor:
    """Vocabulary logits [..., V] of last hidden states [..., H].

    The head works on each position alone: on gathered positions it gives what the whole model
    gives there.
    """
    for path in family_of(model).mlm_head:
        hidden = model.get_submodule(path)(hidden)
    return hidden


def freeze_mlm_head(model: nn.Module) -> None:
    """Take the language-model head out of training, but for what it shares with the encoder."""
    shared = {id(parameter) for parameter in encoder(model).parameters()}
    for path in family_of(model).mlm_head:
        for parameter in model.get_submodule(path).parameters():
            parameter.requires_grad_(id(parameter) in shared and parameter.requires_grad)


def max_length(config: Any) -> int:
    """Most tokens a sequence can have."""
    return int(config.max_position_embeddings) - family_of(config).position_offset
