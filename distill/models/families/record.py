"""The record of a model family: module paths, and the facts in which families differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

TEXTS, TOKENS = "ForSequenceClassification", "ForTokenClassification"
CHOICES, ANSWERS = "ForMultipleChoice", "ForQuestionAnswering"
VECTORS = "ForVectors"
"""Architectures: the part of a class name of transformers after the family's name. transformers has no class for
embedders; theirs is in `distill.models.families.embedding`."""

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of a module's call."""

ABSENT = -1e4
"""Logit of an output that a row lacks, such as a fifth choice of a row with four. Its probability is 0."""

UNBOUNDED = 1 << 20
"""Stands for the maximum length where positions are relative, because there is no maximum."""


@dataclass(frozen=True)
class Layer:
    """Dotted paths of the modules of one layer, below the layer."""

    attention: str
    """The module that computes queries, keys, values and attention scores."""
    query: str
    key: str
    """The same path as `query` where one fused projection computes queries, keys and values."""
    value: str
    attention_output: str
    """The linear projection of the concatenated heads."""
    attention_norm: str
    ffn_in: str
    """The first linear projection of the FFN, twice as wide where it computes the gates too."""
    ffn_out: str
    ffn_norm: str
    ffn_gate: str | None = None
    """The projection that computes the gates of the FFN, where it is a module of its own."""


@dataclass(frozen=True)
class BertLike:
    """Further paths, below the model, in families with BERT's architecture, whose weights fit each other.

    The first three are the parts of the language-model head before the output embedding.
    """

    mlm_dense: str
    mlm_norm: str
    mlm_bias: str
    projection: str | None = None
    """Linear projection from the embedding size to the hidden size, in families where they may differ."""
    always_projects: bool = False
    """Whether the projection exists also where both sizes are equal."""


def split_heads(attention: nn.Module, query: Tensor, key: Tensor, value: Tensor, heads: int) -> tuple[Tensor, ...]:
    """Queries, keys and values [B, heads, L, d] of three projections [B, L, H]."""
    return tuple(x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (query, key, value))


def scaled_dot_product(attention: nn.Module, query: Tensor, key: Tensor, call: Arguments) -> Tensor:
    """Q K^T / sqrt(d) [B, heads, L, L]: Vaswani et al. 2017, arXiv 1706.03762, equation 1."""
    return query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5


def position_table(config: Any) -> int:
    """Maximum length where the position embedding has one row per position."""
    return int(config.max_position_embeddings)


def position_table_after_padding(config: Any) -> int:
    """Maximum length where positions are counted from the row after the padding token id's."""
    return int(config.max_position_embeddings) - int(config.pad_token_id) - 1


def no_table(config: Any) -> int:
    """Maximum length where all positions are relative."""
    return UNBOUNDED


@dataclass(frozen=True)
class Family:
    """The record of one family. All paths are dotted module paths."""

    name: str
    """`config.model_type`."""
    encoder: str
    """Path of the encoder in a model with a head."""
    layers: str
    """Path of the list of layers, below the encoder."""
    embeddings: str
    """Path of the token embedding, below the encoder."""
    layer: Layer | None = None
    """None in a family whose models can only be teachers on tasks."""
    mlm_head: tuple[str, ...] = ()
    """Modules below the model that turn hidden states into vocabulary logits, in the order of their calls."""
    rtd_head: str | None = None
    """Module below the model that turns hidden states [..., H] into the log-odds [...] that a token was replaced (the
    head for replaced-token detection); None where transformers has no class with one."""
    head: str = "classifier"
    """The last linear module of a sequence classifier."""
    pooler: str | None = None
    """Path, below the model, of the pooler before the classifier; None where it is part of the classifier."""
    segment_head: tuple[str, str] | None = None
    """Paths, in its class for pretraining, of the two linear modules of the head for pairs of segments; None without
    such a head."""
    token_types: bool = False
    """Whether models can distinguish the two texts of a pair by `token_type_ids`."""
    max_length: Callable[[Any], int] = position_table
    """Config -> maximum number of tokens in a sequence."""
    qkv: Callable[[nn.Module, Tensor, Tensor, Tensor, int], tuple[Tensor, ...]] = split_heads
    """(attention module, outputs of its three projections, number of heads) -> queries, keys, values."""
    scores: Callable[[nn.Module, Tensor, Tensor, Arguments], Tensor] = scaled_dot_product
    """(attention module, queries, keys, arguments of its call) -> attention scores before mask and softmax. Called in
    float32, outside autocast; parameters of the module may be bf16."""
    shared_layers: bool = False
    """Whether all layers are the same module."""
    shared_heads: bool = False
    """Whether all layers share a table with one column per head, so that they must keep the same heads."""
    unprunable: Mapping[str, Any] = field(default_factory=dict)
    """Setting of a config -> the value that it must have for channels to be pruned, or the name of the setting that it
    must equal."""
    interleaved: bool = False
    """Whether a fused projection holds query, key and value of each head side by side."""
    padding: int | None = None
    """The padding token id that the family's code assumes; None where it comes from the config."""
    pads_left: bool = False
    """Whether its classifier uses the last position whatever the mask, so that padding must be on the left."""
    unused: tuple[str, ...] = ()
    """Parameters of a classifier, below the model, that do not affect its outputs."""
    first_layer: bool = False
    """Whether a student must start from layer 0, because its modules differ from other layers'."""
    attention: tuple[str, ...] = ("eager", "sdpa")
    """Attention implementations that transformers has for it."""
    without: tuple[str, ...] = ()
    """Architectures that transformers does not have for it, or that need padding on the right."""
    onnx: bool = True
    """Whether torch's ONNX exporter supports it."""
    bf16: bool = True
    """Whether it runs under bf16 autocast."""
    recordable: bool = True
    """Whether a training step can be recorded as a CUDA graph: its code does not wait for the GPU, and copies nothing
    from the host."""
    rotary: bool = False
    """Whether positions rotate queries and keys, whatever `position_embedding_type` a config states."""
    translated: bool = False
    """Whether published files have other names than the model's parameters, which transformers translates when it loads
    and saves them, but not while it quantizes."""
    outer: str = ""
    """Prefix, with its dot, that published files put before the names of all tensors of the encoder, and that
    transformers takes away."""
    bert_like: BertLike | None = None
    """Further paths of a family with BERT's architecture; None in the others."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Common name of a config's setting -> its name in this family's configs."""
    published: Mapping[str, Any] = field(default_factory=dict)
    """Settings in which published models differ from transformers' default config."""
