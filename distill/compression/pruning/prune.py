"""Removes layers, heads and channels so that the result is a smaller stock model, which plain transformers loads.

A stock config has one number for each size. So every layer keeps the same number of heads and of feed-forward (FFN)
channels, though not the same ones. The heads of a layer together are as wide as the hidden states, so heads and hidden
channels are pruned together: transformers 5 has no config for a model with fewer heads alone.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from distill.errors import ConfigError
from distill.models import families, student
from distill.models.families.embedding import keeping_width
from distill.models.student.shape import projects, setting


@dataclass(frozen=True)
class Kept:
    """The parts of a model to keep, as ascending indices of its layers, heads and channels."""

    layers: Sequence[int]
    hidden: Tensor
    """[H'] hidden channels, the same for all layers; H' is the number of heads times the size of a head."""
    heads: Sequence[Tensor]
    """[h'] heads, for each layer in `layers`."""
    ffn: Sequence[Tensor]
    """[F'] FFN channels, for each layer in `layers`."""


@dataclass(frozen=True)
class Cut:
    """An axis of a module's weights, and the channels to remove from it."""

    module: nn.Module
    axis: str
    """out or in of a linear module; width of an embedding or a norm; or the name of a parameter of the module."""
    removed: Tensor
    """Indices of the channels."""


def everything(model: Any, layers: Sequence[int] | None = None) -> Kept:
    """All heads and channels of a model, in all of its layers or in `layers`."""
    config = model.config
    chosen = list(range(families.depth(model))) if layers is None else list(layers)
    heads, ffn = torch.arange(families.heads(model)), torch.arange(setting(config, "intermediate_size"))
    return Kept(chosen, torch.arange(config.hidden_size), [heads] * len(chosen), [ffn] * len(chosen))


def pruned(model: Any, kept: Kept) -> Any:
    """A new, smaller model of the same class with the kept weights; `model` is not changed.

    Its outputs equal the outputs of `model` with the removed heads and FFN channels masked by zero, and with the
    removed hidden channels left out of the mean and variance of every norm.

    Raises:
        ConfigError: if no stock config has these sizes.
    """
    from transformers.initialization import no_init_weights

    if len(kept.hidden) < families.width(model):
        model = keeping_width(model)
    sizes = _sizes(model, kept)
    config = student.student_config(model.config, kept.layers, None, sizes)
    cut = only_layers(model, kept.layers)
    removals = list(cuts(cut, kept))
    if not any(len(removal.removed) for removal in removals):
        return cut.train(model.training)
    remove_channels(removals)
    with no_init_weights():  # all weights are loaded below
        built = type(model)(config)
    built.load_state_dict(cut.state_dict())
    built.tie_weights()
    return built.to(model.device).train(model.training)


def only_layers(model: Any, layers: Sequence[int]) -> Any:
    """A copy of the model with only these layers."""
    if list(layers) == list(range(families.depth(model))):
        return copy.deepcopy(model)
    return student.from_teacher(model, layers, init="teacher_layers", seed=0)


def remove_channels(removals: Iterable[Cut]) -> None:
    """Remove the channels from the weights of their modules, in place."""
    import torch_pruning as tp

    for removal in removals:
        module, axis, removed = removal.module, removal.axis, removal.removed
        if not len(removed):
            continue
        if isinstance(module, nn.Linear):
            prune = tp.prune_linear_out_channels if axis == "out" else tp.prune_linear_in_channels
            prune(module, removed.tolist())
        elif isinstance(module, nn.Embedding) and axis == "width":
            tp.prune_embedding_out_channels(module, removed.tolist())
        else:
            # Without torch-pruning, which would put the kept channels of a norm in the order of a Python set.
            names = ("weight", "bias") if axis == "width" else (axis,)
            for name in names:
                if (old := getattr(module, name, None)) is not None:
                    setattr(module, name, nn.Parameter(old.detach()[_complement(len(old), removed)].clone()))


def cuts(model: Any, kept: Kept) -> Iterator[Cut]:
    """All axes of a model with the channels to remove; `model` must already have only the layers `kept.layers`.

    The family's record determines along which axes heads, FFN channels and hidden channels are coupled.
    """
    record, config = families.family_of(model), model.config
    assert record.layer is not None
    hidden = _complement(config.hidden_size, kept.hidden)
    size = config.hidden_size // config.num_attention_heads
    inside: set[nn.Module] = set()
    for number, layer in enumerate(families.layers(model)):
        if layer in inside:
            continue
        heads = _channels(_complement(config.num_attention_heads, kept.heads[number]), size)
        ffn = _complement(setting(config, "intermediate_size"), kept.ffn[number])
        yield from _in_layer(record, layer, hidden, heads, ffn, config)
        inside |= {*layer.modules()}
    yield from _outside(model, inside, hidden, _complement(config.num_attention_heads, kept.heads[0]))


def _in_layer(
    record: families.Family, layer: nn.Module, hidden: Tensor, heads: Tensor, ffn: Tensor, config: Any
) -> Iterator[Cut]:
    paths, width, inner = record.layer, config.hidden_size, setting(config, "intermediate_size")
    assert paths is not None
    for path, module in layer.named_modules():
        if isinstance(module, nn.Linear):
            out, into = heads, hidden  # queries, keys, values, and DeBERTa's projections of distances
            if path == paths.attention_output:
                out, into = hidden, heads
            elif path in (paths.ffn_in, paths.ffn_gate):
                out = _repeated(ffn, inner, module.out_features)
            elif path == paths.ffn_out:
                out, into = hidden, ffn
            elif paths.query == paths.key and path == paths.query:
                size = width // config.num_attention_heads
                out = _interleaved(heads, size) if record.interleaved else _repeated(heads, width, 3 * width)
            yield Cut(module, "out", out)
            yield Cut(module, "in", into)
        elif hasattr(module, "normalized_shape") or type(module).__name__.endswith("Norm"):
            yield Cut(module, "width", hidden)
        else:
            for name, parameter in module.named_parameters(recurse=False):
                if parameter.shape == (width,):  # DeBERTa's biases of queries and values, which no linear module has
                    yield Cut(module, name, heads)


def _outside(model: Any, inside: set[nn.Module], hidden: Tensor, heads: Tensor) -> Iterator[Cut]:
    """Embeddings, final norms, poolers and heads. With projected embeddings, modules before the projection keep their
    channels.

    `heads` are the heads to remove from a table that all layers share.
    """
    record, config = families.family_of(model), model.config
    width = config.hidden_size
    shape, narrow = record.bert_like, set[nn.Module]()
    if shape is not None and shape.projection is not None and projects(config):
        embeddings = families.encoder(model).get_submodule("embeddings")
        narrow = {*embeddings.modules()}
        if families.has_mlm_head(model):
            yield Cut(model.get_submodule(shape.mlm_dense), "in", hidden)
            narrow |= {module for path in record.mlm_head for module in model.get_submodule(path).modules()}
        projection = model.get_submodule(shape.projection)
        yield Cut(projection, "out", hidden)
        narrow.add(projection)
    tokens, head = model.get_input_embeddings().weight, families.head_of(model)
    for path, module in model.named_modules():
        if module in inside or module in narrow:
            continue
        if isinstance(module, nn.Linear):
            if module.weight is not tokens and path != head and module.out_features == width:
                yield Cut(module, "out", hidden)
            if module.in_features == width:
                yield Cut(module, "in", hidden)
        elif isinstance(module, nn.Embedding):
            per_head = record.shared_heads and module.embedding_dim == config.num_attention_heads
            yield Cut(module, "width", heads if per_head else hidden)
        elif getattr(module, "weight", None) is not None and module.weight.shape == (width,):
            yield Cut(module, "width", hidden)


def check_width(config: Any) -> None:
    """Raise ConfigError for a model whose hidden channels and heads cannot be pruned."""
    if (found := families.unprunable(config)) is not None:
        name, got, required = found
        raise ConfigError(
            f"prune: got a model with {name} {got}; must be {required} for its width to be pruned; leave out hidden, "
            'or set dimensions=("layers", "ffn") for a target'
        )


def _sizes(model: Any, kept: Kept) -> dict[str, int | None]:
    config = model.config
    size = config.hidden_size // config.num_attention_heads
    heads, ffn = sorted(set(map(len, kept.heads))), sorted(set(map(len, kept.ffn)))
    if len(heads) > 1 or len(ffn) > 1 or heads[0] * size != len(kept.hidden):
        raise ConfigError(
            f"prune: got {len(kept.hidden)} hidden channels, and {heads} heads of size {size} and {ffn} FFN channels "
            "in the layers; must be the same numbers in every layer, with heads as wide together as the hidden "
            "channels, for a config to describe it; prune heads and hidden channels together"
        )
    if len(kept.hidden) < config.hidden_size:
        check_width(config)
    record = families.family_of(model)
    if (record.shared_layers or record.shared_heads) and any(not torch.equal(h, kept.heads[0]) for h in kept.heads):
        raise ConfigError(
            f"prune: got different heads in the layers; must be the same in family {record.name}, whose layers share "
            "them; choose one set of heads"
        )
    return {"hidden_size": len(kept.hidden), "num_attention_heads": heads[0], "intermediate_size": ffn[0]}


def _complement(count: int, indices: Tensor) -> Tensor:
    """Numbers below `count` that are not in `indices`, ascending."""
    mask = torch.ones(count, dtype=torch.bool)
    mask[indices] = False
    return torch.arange(count)[mask]


def _channels(blocks: Tensor, size: int) -> Tensor:
    """Channels of the blocks with these numbers, each of `size` channels."""
    return (blocks[:, None] * size + torch.arange(size)).flatten()


def _repeated(channels: Tensor, width: int, total: int) -> Tensor:
    """The same channels in each block of `width` channels of a fused projection with `total` channels."""
    return (torch.arange(0, total, width)[:, None] + channels).flatten()


def _interleaved(heads: Tensor, size: int) -> Tensor:
    """All channels, in a projection with query, key and value of each head side by side, of these channels' heads."""
    return _channels(torch.unique(heads // size), 3 * size)
