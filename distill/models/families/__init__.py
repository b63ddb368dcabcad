"""Everything specific to a model family: one record per family, and functions on models that use the record.

To add a family, write a file with its `Family`, list it in `FAMILIES` (records.py) and add its row to the contract
tests. Importing this package does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distill.errors import ConfigError
from distill.models.families.head import HEADS, architecture_of, names_of_class
from distill.models.families.record import ANSWERS, CHOICES, TEXTS, UNBOUNDED, VECTORS
from distill.models.families.record import Family as Family
from distill.models.families.records import FAMILIES as FAMILIES
from distill.models.families.records import STUDENTS as STUDENTS
from distill.models.families.records import family_of as family_of
from distill.models.families.vectors import KEY, embeds

if TYPE_CHECKING:
    from torch import Tensor, nn


def encoder(model: nn.Module) -> nn.Module:
    """The encoder of a model with a head."""
    return model.get_submodule(family_of(model).encoder)


def layers(model: nn.Module) -> list[nn.Module]:
    """The layers of a model with a head, first to last. A shared layer is listed once for each time it is applied."""
    stack = list(encoder(model).get_submodule(family_of(model).layers).children())
    count = int(model.config.num_hidden_layers)  # type: ignore[union-attr, arg-type]
    return [stack[number * len(stack) // count] for number in range(count)]


def input_names(config: Any) -> tuple[str, ...]:
    """Names of the encoder's input tensors: with token types if models of this config distinguish two texts by them."""
    types = family_of(config).token_types and getattr(config, "type_vocab_size", 2) > 1
    return ("input_ids", "attention_mask", *["token_type_ids"] * types)


def inputs(model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors [B, L] of `batch` that are inputs of the model: no labels, and token types only if it has them."""
    return {name: batch[name] for name in input_names(model.config) if name in batch}


def depth(model: nn.Module) -> int:
    """Number of layers."""
    count: int = model.config.num_hidden_layers  # type: ignore[union-attr, assignment]
    return count


def heads(model: nn.Module) -> int:
    """Number of attention heads in a layer."""
    count: int = model.config.num_attention_heads  # type: ignore[union-attr, assignment]
    return count


def width(model: nn.Module) -> int:
    """Hidden size H."""
    hidden: int = model.config.hidden_size  # type: ignore[union-attr, assignment]
    return hidden


def encode(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Last hidden states [B, L, H] for `input_ids` and `attention_mask` [B, L], without running a head."""
    hidden: Tensor = encoder(model)(**inputs(model, batch)).last_hidden_state
    return hidden


ENDED = ("bart", "t5")
"""Families whose classifiers read the state of the last end token."""


def end_token(config: Any) -> int | None:
    """The token that must end every text of models of this config; None where a text may end with any."""
    end: int | None = config.eos_token_id if family_of(config).name in ENDED else None
    return end


def logits(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Outputs of a model's head: [B, C] for texts, [B, L, C] for tokens, [B, 1] for a question with one choice, and for
    a question with its context [B, L, 2], start and end of the answer."""
    import torch

    architecture, given = architecture_of(names_of_class(model)), inputs(model, batch)
    if architecture == CHOICES:  # [B, choices, L], of which each text is the only choice
        given = {name: values.unsqueeze(1) for name, values in given.items()}
    if family_of(model).name in ENDED and (parts := _by_ends(model, given)) is not None:
        result = torch.cat([logits(model, {name: values[rows] for name, values in batch.items()}) for rows in parts])
        return result[torch.argsort(torch.cat(parts))]
    outputs = model(**given)
    if architecture == ANSWERS:
        return torch.stack((outputs.start_logits, outputs.end_logits), dim=-1)
    result = outputs.logits
    return result


def _by_ends(model: nn.Module, given: dict[str, Tensor]) -> list[Tensor] | None:
    """The rows with each number of end tokens, in numbers of rows; None where all rows have the same.

    The heads of these families read the last end token, and refuse rows with other numbers of them: a text may have the
    token's own characters.
    """
    import torch

    counts = (given["input_ids"] == model.config.eos_token_id).sum(-1)  # type: ignore[union-attr]
    found = torch.unique(counts)
    return None if len(found) == 1 else [torch.nonzero(counts == count).flatten() for count in found]


def has_mlm_head(model: nn.Module) -> bool:
    """Whether the model has a language-model head, which `mlm_logits` needs."""
    head = family_of(model).mlm_head
    return bool(head) and hasattr(model, head[-1])


def mlm_logits(model: nn.Module, hidden: Tensor) -> Tensor:
    """Vocabulary logits [..., V] of last hidden states [..., H].

    The head processes each position independently, so that `hidden` may hold only some positions of a batch.
    """
    for path in family_of(model).mlm_head:
        hidden = model.get_submodule(path)(hidden)
    return hidden


def has_rtd_head(model: nn.Module) -> bool:
    """Whether the model has a head for replaced-token detection, which `rtd_logits` needs."""
    head = family_of(model).rtd_head
    return head is not None and hasattr(model, head)


def rtd_logits(model: nn.Module, hidden: Tensor) -> Tensor:
    """Logits [..., 2] of last hidden states [..., H]: that a token is the original one, and that it was replaced.

    The head outputs the log-odds z that a token was replaced, so that the logits are 0 and z: their cross-entropy is
    the binary one of z, and their KL divergence that of two Bernoulli distributions.
    """
    import torch

    head = family_of(model).rtd_head
    assert head is not None
    odds: Tensor = model.get_submodule(head)(hidden)
    return torch.stack([torch.zeros_like(odds), odds], dim=-1)


def freeze_mlm_head(model: nn.Module) -> None:
    """Freeze the language-model head, except for parameters that it shares with the encoder."""
    shared = {id(parameter) for parameter in encoder(model).parameters()}
    for path in family_of(model).mlm_head:
        for parameter in model.get_submodule(path).parameters():
            parameter.requires_grad_(id(parameter) in shared and parameter.requires_grad)


def recordable(model: nn.Module) -> bool:
    """Whether a training step of the model can be recorded as a CUDA graph. Rotary positions of some types follow from
    the longest text, for which the host waits."""
    stated = getattr(model.config, "rope_parameters", None) or {}
    kinds = {part.get("rope_type") for part in (stated, *stated.values()) if isinstance(part, Mapping)}
    return family_of(model).recordable and not kinds & {"dynamic", "longrope"}


def check_head_size(config: Any, key: str = "teacher.name") -> None:
    """Raise ConfigError, about the setting `key`, for heads of another size than the width over their number."""
    given = getattr(config, "head_dim", None)
    if not family_of(config).rotary or given is None:
        return
    size = config.hidden_size // config.num_attention_heads
    if given != size:
        raise ConfigError(
            f"{key}: got a model with head_dim {given}; must be {size}, its width over its "
            f"{config.num_attention_heads} heads, as in the published models of type {config.model_type}; choose such "
            "a model"
        )


def unprunable(config: Any) -> tuple[str, Any, Any] | None:
    """A setting of a config with which hidden channels cannot be pruned, its value, and the value that it must have;
    None without one."""
    for name, value in family_of(config).unprunable.items():
        required = getattr(config, value) if isinstance(value, str) else value
        if (got := getattr(config, name, None) or required) != required:
            return name, got, required
    return None


def max_length(config: Any) -> int:
    """Maximum number of tokens in a sequence, special tokens included; `record.UNBOUNDED` without a maximum."""
    return family_of(config).max_length(config)


def trained_length(config: Any) -> int:
    """Maximum number of tokens of the texts that a model was trained on, as far as its config tells. With relative
    positions, it is the number of positions that the config states, or else 512."""
    stated = getattr(config, "max_position_embeddings", None)
    positions = stated if isinstance(stated, int) and stated > 0 else 512
    longest = max_length(config)
    return positions if longest >= UNBOUNDED else longest


def head_of(model: nn.Module) -> str:
    """Path of the last linear module of a fine-tuned model. An embedder without a linear layer has no module there."""
    architecture = architecture_of(names_of_class(model)) or TEXTS
    if architecture == TEXTS:
        return family_of(model).head
    return next((name for name in HEADS[architecture] if hasattr(model, name)), HEADS[architecture][0])


def auto_class(config: Any, folder: str | Path | None = None) -> Any:
    """The class that loads the fine-tuned model of a config.

    It is a classifier of texts if the config names no other head, and neither the config nor the folder has the
    settings of an embedder.
    """
    listed = folder is not None and embeds(folder)
    named = getattr(config, "architectures", None)
    named = named[:1] if listed and isinstance(named, list) else named  # which sentence-transformers loads
    return class_of(architecture_of(named) or (VECTORS if listed or hasattr(config, KEY) else TEXTS))


def class_of(architecture: str) -> Any:
    """The class that loads models of an architecture: of transformers, e.g. AutoModelForTokenClassification, or of
    embedders."""
    import transformers

    if architecture == VECTORS:
        from distill.models.families.embedding import EncoderForVectors

        return EncoderForVectors

    return getattr(transformers, f"AutoModel{architecture}")
