"""Cutting channels out of a model so that what is left is a stock model of smaller sizes, loaded by plain transformers.

A stock config has one number for each size, so every layer keeps as many heads and feed-forward (FFN) channels as the
others, though not the same ones; and a layer's heads are as wide together as its hidden states, so heads and hidden
channels go together. Heads alone can never be loaded again: transformers 5 has no config for such a model.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from distill import family, student
from distill.errors import ConfigError
from distill.student.shape import projects, setting


@dataclass(frozen=True)
class Kept:
    """What is kept of a model, in numbers of its own layers, heads and channels, ascending."""

    layers: Sequence[int]
    hidden: Tensor
    """[H'] channels of the hidden states, one choice for all layers; H' is heads times the width of a head."""
    heads: Sequence[Tensor]
    """[h'] heads of each layer in `layers`."""
    ffn: Sequence[Tensor]
    """[F'] FFN channels of each layer in `layers`."""


@dataclass(frozen=True)
class Cut:
    """One axis of one tensor and the channels of it that go."""

    module: nn.Module
    axis: str
    """out or in of a linear module; width of an embedding or a norm; or the name of a parameter of the module."""
    gone: Tensor


def everything(model: Any, layers: Sequence[int] | None = None) -> Kept:
    """All of a model's channels, of all or some of its layers."""
    config = model.config
    chosen = list(range(family.depth(model))) if layers is None else list(layers)
    heads, ffn = torch.arange(family.heads(model)), torch.arange(setting(config, "intermediate_size"))
    return Kept(chosen, torch.arange(config.hidden_size), [heads] * len(chosen), [ffn] * len(chosen))


def pruned(model: Any, kept: Kept) -> Any:
    """A stock model, of the class of `model`, with what is kept of its weights; `model` is left as it was.

    It computes what `model` does with the other heads and FFN channels masked by zero, and with the other hidden
    channels left out of every norm's mean and variance. ConfigError for a choice that no stock config expresses.
    """
    from transformers.initialization import no_init_weights

    sizes = _sizes(model, kept)
    config = student.student_config(model.config, kept.layers, None, sizes)
    whole = list(kept.layers) == list(range(family.depth(model)))
    cut = copy.deepcopy(model) if whole else student.from_teacher(model, kept.layers, init="teacher_layers", seed=0)
    parts = list(cuts(cut, kept))
    if not any(len(part.gone) for part in parts):
        return cut.train(model.training)
    sliced(parts)
    with no_init_weights():  # every weight is loaded
        built = type(model)(config)
    built.load_state_dict(cut.state_dict())
    built.tie_weights()
    return built.to(model.device).train(model.training)


def sliced(parts: Iterable[Cut]) -> None:
    """Take what goes out of the modules that have it."""
    import torch_pruning as tp

    for part in parts:
        if not len(part.gone):
            continue
        if isinstance(part.module, nn.Linear):
            prune = tp.prune_linear_out_channels if part.axis == "out" else tp.prune_linear_in_channels
            prune(part.module, part.gone.tolist())
        elif isinstance(part.module, nn.Embedding) and part.axis == "width":
            tp.prune_embedding_out_channels(part.module, part.gone.tolist())
        else:
            # torch-pruning puts the kept channels of a norm in the order of a Python set.
            names = ("weight", "bias") if part.axis == "width" else (part.axis,)
            for name in names:
                if (old := getattr(part.module, name, None)) is not None:
                    setattr(part.module, name, nn.Parameter(old.detach()[_rest(len(old), part.gone)].clone()))


def cuts(model: Any, kept: Kept) -> Iterator[Cut]:
    """Every axis of a model, which has the layers that are kept already, with what goes of it.

    What is coupled is found by the family's record: the axes that heads, FFN channels and hidden states run along.
    """
    record, config = family.family_of(model), model.config
    assert record.layer is not None
    hidden = _rest(config.hidden_size, kept.hidden)
    size = config.hidden_size // config.num_attention_heads
    inside: set[nn.Module] = set()
    for number, layer in enumerate(family.layers(model)):
        if layer in inside:
            continue
        heads = _channels(_rest(config.num_attention_heads, kept.heads[number]), size)
        ffn = _rest(setting(config, "intermediate_size"), kept.ffn[number])
        yield from _in_layer(record, layer, hidden, heads, ffn, config)
        inside |= {*layer.modules()}
    yield from _outside(model, inside, hidden, _rest(config.num_attention_heads, kept.heads[0]))


def _in_layer(
    record: family.Family, layer: nn.Module, hidden: Tensor, heads: Tensor, ffn: Tensor, config: Any
) -> Iterator[Cut]:
    places, width, inner = record.layer, config.hidden_size, setting(config, "intermediate_size")
    assert places is not None
    for path, module in layer.named_modules():
        if isinstance(module, nn.Linear):
            out, into = heads, hidden  # queries, keys, values, and DeBERTa's projections of distances
            if path == places.attention_output:
                out, into = hidden, heads
            elif path == places.ffn_in:
                out = _repeated(ffn, inner, module.out_features)
            elif path == places.ffn_out:
                out, into = hidden, ffn
            elif places.query == places.key and path == places.query:
                size = width // config.num_attention_heads
                out = _interleaved(heads, size) if record.interleaved else _repeated(heads, width, 3 * width)
            yield Cut(module, "out", out)
            yield Cut(module, "in", into)
        elif hasattr(module, "normalized_shape") or type(module).__name__.endswith("LayerNorm"):
            yield Cut(module, "width", hidden)
        else:
            for name, parameter in module.named_parameters(recurse=False):
                if parameter.shape == (width,):  # DeBERTa's biases of queries and values
                    yield Cut(module, name, heads)


def _outside(model: Any, inside: set[nn.Module], hidden: Tensor, heads: Tensor) -> Iterator[Cut]:
    """Embeddings, final norms, poolers and heads. Where embeddings are projected, only what is behind is as wide."""
    record, config = family.family_of(model), model.config
    width = config.hidden_size
    shape, narrow = record.bert_like, set[nn.Module]()
    if shape is not None and shape.projection is not None and projects(config):
        embeddings = family.encoder(model).get_submodule("embeddings")
        narrow = {*embeddings.modules()}
        if family.has_mlm_head(model):
            yield Cut(model.get_submodule(shape.mlm_dense), "in", hidden)
            narrow |= {module for path in record.mlm_head for module in model.get_submodule(path).modules()}
        projection = model.get_submodule(shape.projection)
        yield Cut(projection, "out", hidden)
        narrow.add(projection)
    tokens = model.get_input_embeddings().weight
    for path, module in model.named_modules():
        if module in inside or module in narrow:
            continue
        if isinstance(module, nn.Linear):
            if module.weight is not tokens and path != record.head and module.out_features == width:
                yield Cut(module, "out", hidden)
            if module.in_features == width:
                yield Cut(module, "in", hidden)
        elif isinstance(module, nn.Embedding):
            per_head = record.shared_heads and module.embedding_dim == config.num_attention_heads
            yield Cut(module, "width", heads if per_head else hidden)
        elif getattr(module, "weight", None) is not None and module.weight.shape == (width,):
            yield Cut(module, "width", hidden)


def _sizes(model: Any, kept: Kept) -> dict[str, int | None]:
    config = model.config
    size = config.hidden_size // config.num_attention_heads
    heads, ffn = sorted({len(some) for some in kept.heads}), sorted({len(some) for some in kept.ffn})
    if len(heads) > 1 or len(ffn) > 1 or heads[0] * size != len(kept.hidden):
        raise ConfigError(
            f"prune: got {len(kept.hidden)} hidden channels, and {heads} heads of {size} and {ffn} FFN channels in its "
            "layers; must be as many heads as fill the hidden channels, and the same numbers in every layer, for a "
            "config to express it; cut heads and hidden channels together"
        )
    record = family.family_of(model)
    if (record.shared_layers or record.shared_heads) and any(not torch.equal(h, kept.heads[0]) for h in kept.heads):
        raise ConfigError(
            f"prune: got other heads in each layer; must be the same in family {record.name}, whose layers share them; "
            "choose one set of heads"
        )
    return {"hidden_size": len(kept.hidden), "num_attention_heads": heads[0], "intermediate_size": ffn[0]}


def _rest(count: int, some: Tensor) -> Tensor:
    """Numbers below `count` that are not in `some`, ascending."""
    left = torch.ones(count, dtype=torch.bool)
    left[some] = False
    return torch.arange(count)[left]


def _channels(blocks: Tensor, size: int) -> Tensor:
    """Channels of blocks of `size`."""
    return (blocks[:, None] * size + torch.arange(size)).flatten()


def _repeated(channels: Tensor, width: int, total: int) -> Tensor:
    """The same channels of each part of `width` that a fused projection is made of."""
    return (torch.arange(0, total, width)[:, None] + channels).flatten()


def _interleaved(heads: Tensor, size: int) -> Tensor:
    """Channels of heads in a projection that holds, head by head, its queries, keys and values."""
    return _channels(torch.unique(heads // size), 3 * size)
