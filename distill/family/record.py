"""What the rest of the toolkit needs to know of a model family: data, not code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """Where the parts of a family's models are. All paths are dotted module paths."""

    name: str
    """`config.model_type`."""
    encoder: str
    """The encoder, below a model with a head."""
    layers: str
    """The list of layers, below the encoder."""
    mlm_head: tuple[str, ...]
    """Modules below the model from hidden states to vocabulary logits, in the order of use."""
    token_types: bool
    """Whether the model tells the first text of a pair from the second by `token_type_ids`."""
    position_offset: int
    """Rows at the start of the position table that no token uses."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the tensors the encoder takes."""
        names = ("input_ids", "attention_mask")
        return (*names, "token_type_ids") if self.token_types else names
