"""What the rest of the toolkit needs to know of a model family: data, not code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""What a module was called with."""


UNBOUNDED = 1 << 20
"""Most tokens of a text where positions are relative: there is no longest one."""


@dataclass(frozen=True)
class Layer:
    """Where the parts of one layer are: dotted paths below it."""

    attention: str
    """The module that computes queries, keys, values and their scores."""
    query: str
    key: str
    """The same as `query` where one projection makes queries, keys and values."""
    value: str
    attention_output: str
    """The projection of what the heads attended to."""
    attention_norm: str
    ffn_in: str
    """One projection, of twice the width where the family gates it."""
    ffn_out: str
    ffn_norm: str


@dataclass(frozen=True)
class BertShape:
    """What else is where, in a family that computes as BERT does: its weights fit other families of that shape.

    Paths below the model; of a language-model head, the parts before the table of tokens.
    """

    mlm_dense: str
    mlm_norm: str
    mlm_bias: str
    projection: str | None = None
    """From the width of the embeddings to that of the layers, in families where they may differ."""
    always_projects: bool = False
    """Whether the projection is there at equal widths too."""


def split_heads(attention: nn.Module, query: Tensor, key: Tensor, value: Tensor, heads: int) -> tuple[Tensor, ...]:
    """Queries, keys and values [B, heads, L, d] of three projections [B, L, H]."""
    return tuple(x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (query, key, value))


def scaled_dot_product(attention: nn.Module, query: Tensor, key: Tensor, call: Arguments) -> Tensor:
    """Q K^T / sqrt(d) [B, heads, L, L]: Vaswani et al. 2017, arXiv 1706.03762, equation 1."""
    return query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5


def position_table(config: Any) -> int:
    """A table with a row for each position."""
    return int(config.max_position_embeddings)


def position_table_after_padding(config: Any) -> int:
    """A table whose positions are counted from the row after that of the padding token."""
    return int(config.max_position_embeddings) - int(config.pad_token_id) - 1


def no_table(config: Any) -> int:
    """Relative positions alone."""
    return UNBOUNDED


@dataclass(frozen=True)
class Family:
    """Where the parts of a family's models are. All paths are dotted module paths."""

    name: str
    """`config.model_type`."""
    encoder: str
    """The encoder, below a model with a head."""
    layers: str
    """The list of layers, below the encoder."""
    embeddings: str
    """The table of token embeddings, below the encoder."""
    layer: Layer | None = None
    """None in a family that can teach tasks alone."""
    mlm_head: tuple[str, ...] = ()
    """Modules below the model from hidden states to vocabulary logits, in the order of use."""
    head: str = "classifier"
    """The last linear module of a sequence classifier."""
    pooler: str | None = None
    """What turns hidden states into one vector before the classifier, below the model, where it is no part of it."""
    token_types: bool = False
    """Whether the model can tell the first text of a pair from the second by `token_type_ids`."""
    max_length: Callable[[Any], int] = position_table
    """Config -> most tokens a sequence can have."""
    qkv: Callable[[nn.Module, Tensor, Tensor, Tensor, int], tuple[Tensor, ...]] = split_heads
    """Attention module, outputs of its three projections, number of heads -> queries, keys, values."""
    scores: Callable[[nn.Module, Tensor, Tensor, Arguments], Tensor] = scaled_dot_product
    """Attention module, queries, keys, the arguments it was called with -> attention scores before the softmax. It is
    called in float32, outside autocast; projections in the module may be of bf16."""
    shared_layers: bool = False
    """Whether several layers are one and the same module."""
    shared_heads: bool = False
    """Whether all layers share a table with a column for each head."""
    unprunable: Mapping[str, Any] = field(default_factory=dict)
    """Settings of a config and the value they must have for a model's channels to be cut."""
    interleaved: bool = False
    """Whether one projection holds queries, keys and values of each head side by side."""
    padding: int | None = None
    """Token that must pad, where the code takes one for granted."""
    pads_left: bool = False
    """Whether it answers at the last token, whatever the mask says."""
    unused: tuple[str, ...] = ()
    """Parameters of a classifier, below the model, that no answer depends on."""
    first_layer: bool = False
    """Whether a student must start from layer 0, which is built otherwise than the others."""
    attention: tuple[str, ...] = ("eager", "sdpa")
    """Attention kernels of torch that transformers has for it."""
    onnx: bool = True
    """Whether torch's ONNX exporter takes its code."""
    bf16: bool = True
    """Whether its code runs in bf16 autocast."""
    bert_shape: BertShape | None = None
    """Where the weights of another family of BERT's shape go; None in a family that computes otherwise."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Name of a setting in most configs -> its name in this family's."""
    published: Mapping[str, Any] = field(default_factory=dict)
    """Settings of published models that a bare config has otherwise."""
