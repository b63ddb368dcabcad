"""The only place that knows model families: one record for each, and the few questions asked of it.

A new family is one file with a `Family`, its name in `FAMILIES` and one row in the contract test.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from distill.errors import ConfigError
from distill.family.albert import ALBERT
from distill.family.bert import BERT, ERNIE
from distill.family.deberta import DEBERTA, DEBERTA_V2
from distill.family.decoder import GEMMA2, GEMMA3, QWEN2, QWEN3
from distill.family.distilbert import DISTILBERT
from distill.family.electra import ELECTRA
from distill.family.modernbert import MODERNBERT
from distill.family.mpnet import MPNET
from distill.family.record import Family
from distill.family.roberta import CAMEMBERT, ROBERTA, XLM_ROBERTA
from distill.family.seq2seq import BART, T5
from distill.family.xlnet import XLNET

__all__ = [
    "FAMILIES",
    "STUDENTS",
    "Family",
    "depth",
    "encode",
    "encoder",
    "family_of",
    "freeze_mlm_head",
    "has_mlm_head",
    "heads",
    "input_names",
    "inputs",
    "layers",
    "max_length",
    "mlm_logits",
    "token_types",
    "width",
]

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        BERT,
        ERNIE,
        ROBERTA,
        XLM_ROBERTA,
        CAMEMBERT,
        DISTILBERT,
        ELECTRA,
        ALBERT,
        MPNET,
        DEBERTA,
        DEBERTA_V2,
        MODERNBERT,
        XLNET,
        BART,
        T5,
        QWEN2,
        QWEN3,
        GEMMA2,
        GEMMA3,
    )
}

STUDENTS: dict[str, Family] = {name: family for name, family in FAMILIES.items() if family.layer is not None}
"""Families of students; a teacher of one of these can teach more than its answers to tasks."""


def family_of(model_or_config: Any, key: str = "teacher.name") -> Family:
    """The record of a transformers model or config. ConfigError, about the setting `key`, when it is not known."""
    kind = getattr(model_or_config, "config", model_or_config).model_type
    if kind not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise ConfigError(f"{key}: got a model of type {kind}; must be one of {known}; choose such a model")
    return FAMILIES[kind]


def encoder(model: nn.Module) -> nn.Module:
    """The encoder of a model with a head."""
    return model.get_submodule(family_of(model).encoder)


def layers(model: nn.Module) -> list[nn.Module]:
    """The layers of a model with a head, first to last. A layer that is shared is there as often as it is run."""
    stack = list(encoder(model).get_submodule(family_of(model).layers).children())
    count = int(model.config.num_hidden_layers)  # type: ignore[union-attr, arg-type]
    return [stack[number * len(stack) // count] for number in range(count)]


def token_types(config: Any) -> bool:
    """Whether models of this config tell the texts of a pair by `token_type_ids`."""
    return family_of(config).token_types and getattr(config, "type_vocab_size", 2) > 1


def input_names(config: Any) -> tuple[str, ...]:
    """Names of the tensors the encoder takes."""
    names = ("input_ids", "attention_mask")
    return (*names, "token_type_ids") if token_types(config) else names


def inputs(model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The part of `batch` that the model takes (labels and foreign token types are left out)."""
    return {name: batch[name] for name in input_names(model.config) if name in batch}


def depth(model: nn.Module) -> int:
    """Number of layers."""
    count: int = model.config.num_hidden_layers  # type: ignore[union-attr, assignment]
    return count


def heads(model: nn.Module) -> int:
    """Attention heads of a layer."""
    count: int = model.config.num_attention_heads  # type: ignore[union-attr, assignment]
    return count


def width(model: nn.Module) -> int:
    """H, the width of the hidden states."""
    hidden: int = model.config.hidden_size  # type: ignore[union-attr, assignment]
    return hidden


def encode(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Last hidden state [B, L, H] for `input_ids` and `attention_mask` [B, L]. No head is run."""
    hidden: Tensor = encoder(model)(**inputs(model, batch)).last_hidden_state
    return hidden


def has_mlm_head(model: nn.Module) -> bool:
    """Whether the model can answer `mlm_logits`."""
    head = family_of(model).mlm_head
    return bool(head) and hasattr(model, head[-1])


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
    return family_of(config).max_length(config)
