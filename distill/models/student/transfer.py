"""Initializes a student from its teacher's weights: fewer or narrower layers, factorized embeddings, another family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from distill.errors import ConfigError
from distill.models import families
from distill.models.families.record import Layer
from distill.models.student.shape import projects

Parts = dict[str, Tensor]
"""Name of a parameter, the same in every family with BERT's architecture -> its values."""

_SLOTS = tuple(field.name for field in fields(Layer) if field.name not in ("attention", "ffn_gate"))


@torch.no_grad()
def transfer(teacher: Any, student: Any, layers: Sequence[int]) -> None:
    """Copy the teacher's `layers`, embeddings and head into `student`, in place.

    A narrower student gets evenly spaced channels, as in the uniform selection of Xu et al. 2024, arXiv 2311.18823.
    Deviations: the layers are given, and channels of attention are selected as whole heads. Between families with
    BERT's architecture, parameters are copied to parameters of the same function; embeddings narrower than the layers
    are computed by `_factorized`. `check_transfer` must have accepted the two configs.
    """
    same = student.config.model_type == teacher.config.model_type
    if same and projects(student.config) == projects(teacher.config):
        _by_name(teacher, student, layers)
    else:
        _by_part(teacher, student, layers)


def can_transfer(teacher: str, student: str) -> bool:
    """Whether weights of family `teacher` fit family `student`: both are the same, or have BERT's architecture."""
    return teacher == student or all(families.FAMILIES[family].bert_like is not None for family in (teacher, student))


def _by_name(teacher: Any, student: Any, layers: Sequence[int]) -> None:
    own, record = student.state_dict(), families.family_of(teacher)
    assert record.layer is not None
    fused = f".{record.layer.query}." if record.layer.query == record.layer.key else None
    for key, value in _selected(teacher, layers).items():
        blocks = 0 if fused is None or fused not in key else 3 if record.interleaved else 1
        own[key] = _narrowed(value, own[key].shape, teacher, blocks)
    student.load_state_dict(own)


def _selected(model: Any, layers: Sequence[int]) -> dict[str, Tensor]:
    """The teacher's state dict with the chosen layers renumbered and the others left out. Shared layers stay shared."""
    record = families.family_of(model)
    if record.shared_layers:
        depth, groups = families.depth(model), getattr(model.config, "num_hidden_groups", 1)
        if groups > 1 and list(layers) != list(range(depth)):
            raise ConfigError(
                f"student.layers: got {len(layers)} of {depth} layers, whose weights are in {groups} groups "
                "(num_hidden_groups); must be all, because a layer of a model with another depth has those of another "
                "group; use another model"
            )
        return dict(model.state_dict())
    prefix = f"{record.encoder}.{record.layers}."
    new = {old: number for number, old in enumerate(layers)}
    state = {}
    for key, value in model.state_dict().items():
        if key.startswith(prefix):
            old, rest = key.removeprefix(prefix).split(".", 1)
            if int(old) not in new:
                continue
            key = f"{prefix}{new[int(old)]}.{rest}"
        state[key] = value
    return state


def _narrowed(value: Tensor, shape: Sequence[int], teacher: Any, fused: int = 0) -> Tensor:
    """A teacher's tensor reduced to `shape` by evenly spaced channels in every dimension.

    A dimension of the hidden size is selected in whole heads. So is a dimension of three times the hidden size, the
    output of a fused query-key-value projection: `fused` is 3 where queries, keys and values of each head are side by
    side, 1 where all queries come first, then all keys, then all values, and 0 for other tensors.
    """
    hidden, heads = teacher.config.hidden_size, teacher.config.num_attention_heads
    blocks = {hidden: hidden // heads} | ({3 * hidden: fused * hidden // heads} if fused else {})
    for dim, (old, new) in enumerate(zip(value.shape, shape, strict=True)):
        if old != new:
            value = value.index_select(dim, evenly(old, new, blocks.get(old, 1)).to(value.device))
    return value


def evenly(total: int, count: int, block: int = 1) -> Tensor:
    """Indices [count] of evenly spaced channels out of `total`; whole blocks where `block` divides both numbers."""
    if total % block or count % block:
        block = 1
    first = torch.arange(count // block) * (total // block) // (count // block)
    return (first[:, None] * block + torch.arange(block)).flatten()


def _by_part(teacher: Any, student: Any, layers: Sequence[int]) -> None:
    target = _parts(student, range(student.config.num_hidden_layers))
    source = {name: value.float().cpu() for name, value in _parts(teacher, layers).items()}
    source = _with_types(source, target)
    width, hidden = target["word"].shape[1], student.config.hidden_size
    if projects(student.config) and not projects(teacher.config):
        if width == hidden:  # ALBERT has a projection also where embeddings are as wide as the layers
            source |= {"projection.weight": torch.eye(hidden), "projection.bias": torch.zeros(hidden)}
        else:
            source |= _factorized(source, width, hidden, teacher)
    # Last layer first, so that a layer the student shares ends with the weights of the first layer it replaces.
    for name, value in reversed(target.items()):
        if name in source:
            value.copy_(_narrowed(source[name], value.shape, teacher))
    for name, value in student.named_parameters():
        if name.endswith("relative_attention_bias.weight"):
            value.zero_()  # MPNet adds this bias to attention scores; the teacher has none


def _parts(model: Any, layers: Sequence[int]) -> Parts:
    """Parameters of a model with BERT's architecture, of `layers` only. Position 0 is the position of a text's first
    token."""
    record, embeddings = families.family_of(model), families.encoder(model).get_submodule("embeddings")
    shape, stack = record.bert_like, families.layers(model)
    assert shape is not None
    assert record.layer is not None
    modules = {
        f"{number}.{slot}": stack[old].get_submodule(getattr(record.layer, slot))
        for number, old in enumerate(layers)
        for slot in _SLOTS
    }
    modules["norm"] = embeddings.get_submodule("LayerNorm")
    if shape.projection is not None and projects(model.config):
        modules["projection"] = model.get_submodule(shape.projection)
    parts = {}
    if families.has_mlm_head(model):
        modules |= {"mlm_dense": model.get_submodule(shape.mlm_dense), "mlm_norm": model.get_submodule(shape.mlm_norm)}
        parts["mlm_bias"] = model.get_parameter(shape.mlm_bias).data
    if families.has_rtd_head(model):
        modules["rtd"] = model.get_submodule(str(record.rtd_head))
    parts |= {f"{name}.{key}": p.data for name, module in modules.items() for key, p in module.named_parameters()}
    unused = model.config.max_position_embeddings - families.max_length(model.config)
    tables = {name: table.data for name, table in embeddings.named_parameters() if name.endswith("embeddings.weight")}
    parts["word"] = tables["word_embeddings.weight"]
    parts["position"] = tables["position_embeddings.weight"][unused:]
    if "token_type_embeddings.weight" in tables:
        parts["type"] = tables["token_type_embeddings.weight"]
    if "task_type_embeddings.weight" in tables:
        parts["task"] = tables["task_type_embeddings.weight"]
    return parts


def _with_types(source: Parts, target: Parts) -> Parts:
    """The teacher's parameters with the student's number of positions and of token types.

    If the student has no token types, the embedding of type 0 is added to the position embeddings, so that it outputs
    the same for a single text.
    """
    position, types = source["position"][: len(target["position"])], source.get("type")
    if "task" in source and "task" not in target:
        position = position + source["task"][0]  # ERNIE adds it to every token
    if "type" not in target:
        return source | {"position": position if types is None else position + types[0]}
    if types is None:
        types = torch.zeros_like(position[:1])
    rows = [min(row, len(types) - 1) for row in range(len(target["type"]))]
    return source | {"position": position, "type": types[rows]}


def _factorized(source: Parts, width: int, hidden: int, teacher: Any) -> Parts:
    """Embeddings of `width` with a projection to layers of `hidden`, and the dense layer of the language-model head.

    The factorization of Lan et al. 2020, arXiv 1909.11942, section 3.1. Deviation: it is computed from the teacher in
    place of trained from scratch. The embeddings are the teacher's, projected onto the first right singular vectors of
    its token embedding, the best approximation of that rank. The norm is a plain one. The projection is a least-squares
    fit, over the vocabulary, to the input of the teacher's first layer. The head's dense layer is projected onto the
    same directions before its activation, which is only a rough start.
    """
    parts: Parts = {
        name: _narrowed(source[name], (len(source[name]), hidden), teacher)
        for name in ("word", "position", "type")
        if name in source
    }
    _, directions = torch.linalg.eigh((parts["word"].T @ parts["word"]).double())
    basis = directions.flip(1)[:, :width].float()  # [hidden, width]
    parts = {name: table @ basis for name, table in parts.items()}
    inputs = F.pad(F.layer_norm(_embedded(parts), (width,)), (0, 1), value=1.0).double()
    outputs = F.layer_norm(_embedded(source), source["norm.weight"].shape, source["norm.weight"], source["norm.bias"])
    outputs = _narrowed(outputs, (len(outputs), hidden), teacher).double()
    # The pseudo-inverse, because normalized rows have mean zero: the Gram matrix of the inputs is singular.
    fit = (torch.linalg.pinv(inputs.T @ inputs, rtol=1e-10, hermitian=True) @ (inputs.T @ outputs)).float()
    parts |= {"projection.weight": fit[:-1].T, "projection.bias": fit[-1]}
    parts |= {"norm.weight": torch.ones(width), "norm.bias": torch.zeros(width)}
    if "mlm_dense.weight" in source:
        parts["mlm_dense.weight"] = basis.T @ _narrowed(source["mlm_dense.weight"], (hidden, hidden), teacher)
        parts["mlm_dense.bias"] = basis.T @ _narrowed(source["mlm_dense.bias"], (hidden,), teacher)
        parts |= {"mlm_norm.weight": torch.ones(width), "mlm_norm.bias": torch.zeros(width)}
    return parts


def _embedded(tables: Parts) -> Tensor:
    """[V, E] summed embeddings of every token of the vocabulary, of type 0 and each at a position (i modulo length)."""
    positions = tables["position"][torch.arange(len(tables["word"])) % len(tables["position"])]
    types = tables["type"][0] if "type" in tables else 0
    return tables["word"] + positions + types
