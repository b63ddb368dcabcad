"""Starting a student from its teacher's weights: layer by layer, narrower, factorized, or in another family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from distill import family
from distill.family.record import Layer
from distill.student.shape import projects

Parts = dict[str, Tensor]
"""Name of a part, the same in every family of BERT's shape -> its weights."""

_SLOTS = tuple(field.name for field in fields(Layer) if field.name != "attention")


@torch.no_grad()
def transfer(teacher: Any, student: Any, layers: Sequence[int]) -> None:
    """Give `student` the weights of the teacher's `layers`, embeddings and head.

    A narrower student gets evenly spaced channels, as in the uniform selection of Xu et al. 2024, arXiv 2311.18823.
    Deviations: the layers are chosen, and of the width whole heads are taken. Between families of BERT's shape every
    part goes where it belongs; embeddings narrower than the layers are made by `_factorized`. What cannot be is
    refused by `check_transfer` before.
    """
    same = student.config.model_type == teacher.config.model_type
    if same and projects(student.config) == projects(teacher.config):
        _by_name(teacher, student, layers)
    else:
        _by_part(teacher, student, layers)


def can_transfer(teacher: str, student: str) -> bool:
    """Whether the weights of one family have a place in the other."""
    return teacher == student or all(family.FAMILIES[kind].bert_shape is not None for kind in (teacher, student))


def _by_name(teacher: Any, student: Any, layers: Sequence[int]) -> None:
    own, record = student.state_dict(), family.family_of(teacher)
    assert record.layer is not None
    fused = f".{record.layer.query}." if record.layer.query == record.layer.key else None
    for key, value in _selected(teacher, layers).items():
        blocks = 0 if fused is None or fused not in key else 3 if record.interleaved else 1
        own[key] = _narrowed(value, own[key].shape, teacher, blocks)
    student.load_state_dict(own)


def _selected(model: Any, layers: Sequence[int]) -> dict[str, Tensor]:
    """State of the teacher with the chosen layers renumbered and the others left out. Shared layers stay shared."""
    record = family.family_of(model)
    if record.shared_layers:
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
    """Evenly spaced channels of a teacher's tensor, as many as `shape` asks for, in every dimension.

    What is as wide as the layers is made of heads. So is, in a `fused` projection, three times that width: of heads'
    queries, keys and values side by side (3), or of all queries, then all keys, then all values (1).
    """
    hidden, heads = teacher.config.hidden_size, teacher.config.num_attention_heads
    blocks = {hidden: hidden // heads} | ({3 * hidden: fused * hidden // heads} if fused else {})
    for dim, (have, want) in enumerate(zip(value.shape, shape, strict=True)):
        if have != want:
            value = value.index_select(dim, evenly(have, want, blocks.get(have, 1)).to(value.device))
    return value


def evenly(have: int, want: int, size: int = 1) -> Tensor:
    """Numbers of `want` of `have` channels, evenly spaced; whole blocks of `size` where both are made of such."""
    if have % size or want % size:
        size = 1
    first = torch.arange(want // size) * (have // size) // (want // size)
    return (first[:, None] * size + torch.arange(size)).flatten()


def _by_part(teacher: Any, student: Any, layers: Sequence[int]) -> None:
    given, wanted = _parts(teacher, layers), _parts(student, range(student.config.num_hidden_layers))
    given = _typed({name: value.float().cpu() for name, value in given.items()}, wanted)
    width, hidden = wanted["word"].shape[1], student.config.hidden_size
    if projects(student.config) and not projects(teacher.config):
        given |= _projected(hidden) if width == hidden else _factorized(given, width, hidden, teacher)
    # From the last layer: one that is shared is then like the first of those it stands for.
    for name, value in reversed(wanted.items()):
        if name in given:
            value.copy_(_narrowed(given[name], value.shape, teacher))
    for name, value in student.named_parameters():
        if name.endswith("relative_attention_bias.weight"):
            value.zero_()  # MPNet's: the teacher's scores have none


def _parts(model: Any, layers: Sequence[int]) -> Parts:
    """Parameters of a model of BERT's shape, of some of its layers. Positions count from the first that a token has."""
    record, embeddings = family.family_of(model), family.encoder(model).get_submodule("embeddings")
    shape, stack = record.bert_shape, family.layers(model)
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
    found = {}
    if family.has_mlm_head(model):
        modules |= {"mlm_dense": model.get_submodule(shape.mlm_dense), "mlm_norm": model.get_submodule(shape.mlm_norm)}
        found["mlm_bias"] = model.get_parameter(shape.mlm_bias).data
    found |= {f"{name}.{key}": p.data for name, module in modules.items() for key, p in module.named_parameters()}
    unused = model.config.max_position_embeddings - family.max_length(model.config)
    tables = {name: table.data for name, table in embeddings.named_parameters() if name.endswith("embeddings.weight")}
    found["word"] = tables["word_embeddings.weight"]
    found["position"] = tables["position_embeddings.weight"][unused:]
    if "token_type_embeddings.weight" in tables:
        found["type"] = tables["token_type_embeddings.weight"]
    if "task_type_embeddings.weight" in tables:
        found["task"] = tables["task_type_embeddings.weight"]
    return found


def _typed(given: Parts, wanted: Parts) -> Parts:
    """With as many token types and positions as the student has. Types that it has not go into its positions, those of
    the first text, so that a single text gives what it gave.
    """
    position, types = given["position"][: len(wanted["position"])], given.get("type")
    if "task" in given and "task" not in wanted:
        position = position + given["task"][0]  # ERNIE's, the same in every text
    if "type" not in wanted:
        return given | {"position": position if types is None else position + types[0]}
    if types is None:
        types = torch.zeros_like(position[:1])
    rows = [min(row, len(types) - 1) for row in range(len(wanted["type"]))]
    return given | {"position": position, "type": types[rows]}


def _projected(hidden: int) -> Parts:
    """A projection that changes nothing: ALBERT has one at equal widths too."""
    return {"projection.weight": torch.eye(hidden), "projection.bias": torch.zeros(hidden)}


def _factorized(given: Parts, width: int, hidden: int, teacher: Any) -> Parts:
    """Embeddings of `width` for layers of `hidden`: tables, norm, projection, and the head's part of that width.

    The shape is that of Lan et al. 2020, arXiv 1909.11942, section 3.1, who train it from nothing. Here the tables are
    the teacher's in the first right singular vectors of its table of tokens, the best approximation of that rank; the
    norm is a plain one; the projection is the least-squares fit, over the vocabulary, to what the teacher's first layer
    is given. Turning the head's dense layer into those directions, before its activation, is a rough start.
    """
    found: Parts = {
        name: _narrowed(given[name], (len(given[name]), hidden), teacher)
        for name in ("word", "position", "type")
        if name in given
    }
    _, directions = torch.linalg.eigh((found["word"].T @ found["word"]).double())
    basis = directions.flip(1)[:, :width].float()  # [hidden, width]
    found = {name: table @ basis for name, table in found.items()}
    inputs = F.pad(F.layer_norm(_embedded(found), (width,)), (0, 1), value=1.0).double()
    outputs = F.layer_norm(_embedded(given), given["norm.weight"].shape, given["norm.weight"], given["norm.bias"])
    outputs = _narrowed(outputs, (len(outputs), hidden), teacher).double()
    # Normalized rows have mean zero: one direction of the inputs is empty.
    fit = (torch.linalg.pinv(inputs.T @ inputs, rtol=1e-10, hermitian=True) @ (inputs.T @ outputs)).float()
    found |= {"projection.weight": fit[:-1].T, "projection.bias": fit[-1]}
    found |= {"norm.weight": torch.ones(width), "norm.bias": torch.zeros(width)}
    if "mlm_dense.weight" in given:
        found["mlm_dense.weight"] = basis.T @ _narrowed(given["mlm_dense.weight"], (hidden, hidden), teacher)
        found["mlm_dense.bias"] = basis.T @ _narrowed(given["mlm_dense.bias"], (hidden,), teacher)
        found |= {"mlm_norm.weight": torch.ones(width), "mlm_norm.bias": torch.zeros(width)}
    return found


def _embedded(tables: Parts) -> Tensor:
    """[V, E] every token, each at one position of its own, in the first text."""
    positions = tables["position"][torch.arange(len(tables["word"])) % len(tables["position"])]
    types = tables["type"][0] if "type" in tables else 0
    return tables["word"] + positions + types
