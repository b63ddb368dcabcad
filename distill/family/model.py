"""What a loaded model of a known family is asked: its parts, sizes, inputs and outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distill.family.records import family_of

if TYPE_CHECKING:
    from torch import Tensor, nn


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
