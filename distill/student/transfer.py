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

Parts = dict[str, Tensor]
"""Name of a part, the same in every family of BERT's shape -> its weights."""

_SLOTS = tuple(field.name for field in fields(Layer) if field.name != "attention")


@torch.no_grad()
def transfer(teacher: Any, student: Any, layers: Sequence[int]) -> None:
    """Give `student` the weights of the teacher's `layers`, embeddings and head.

    A narrower student gets evenly spaced channels, whole heads where these keep their size: the uniform selection of Xu
    et al. 2024, arXiv 2311.18823, section 3.2. Between families of BERT's shape every part goes where it belongs, and
    embeddings narrower than the teacher's are the best approximation of their rank (see `_factorized`).
    """
    same = student.config.model_type == teacher.config.model_type
    if same and _embedding_width(student) * teacher.config.hidden_size == _embedding_width(teacher) * (
        student.config.hidden_size
    ):
        _by_name(teacher, student, layers)
    else:
        _by_part(teacher, student, layers)


def can_transfer(teacher: str, student: str) -> bool:
    """Whether the weights of one family have a place in the other."""
    return teacher == student or all(family.FAMILIES[kind].bert_shape is not None for kind in (teacher, student))


def _by_name(teacher: Any, student: Any, layers: Sequence[int]) -> None:
    own = student.state_dict()
    for key, value in _selected(teacher, layers).items():
        own[key] = _narrowed(value, own[key].shape, teacher)
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


def _narrowed(value: Tensor, shape: Sequence[int], teacher: Any) -> Tensor:
    """Evenly spaced channels of a teacher's tensor, as many as `shape` asks for, in every dimension."""
    hidden, heads = teacher.config.hidden_size, teacher.config.num_attention_heads
    for dim, (have, want) in enumerate(zip(value.shape, shape, strict=True)):
        if have != want:
            # Only what is as wide as the layers, or holds queries, keys and values of that width, is made of heads.
            size = hidden // heads if have in (hidden, 3 * hidden) else 1
            size *= 3 if have == 3 * hidden and family.family_of(teacher).interleaved else 1
            value = value.index_select(dim, evenly(have, want, size).to(value.device))
    return value


def evenly(have: int, want: int, size: int = 1) -> Tensor:
    """Numbers of `want` of `have` channels, evenly spaced; whole blocks of `size` where both are made of such."""
    if have % size or want % size:
        size = 1
    first = torch.arange(want // size) * (have // size) // (want // size)
    return (first[:, None] * size + torch.arange(size)).flatten()


def _by_part(teacher: Any, student: Any, layers: Sequence[int]) -> None:
    given, wanted = _parts(teacher, layers), _parts(student, range(student.config.num_hidden_layers))
    given = _typed(given, wanted)
    width, narrow = given["word"].shape[1], wanted["word"].shape[1]
    alike = width == narrow or (width, narrow) == (teacher.config.hidden_size, student.config.hidden_size)
    given |= _identity(given, wanted) if alike else _factorized(given, wanted, teacher)
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
    modules = {
        f"{number}.{slot}": stack[old].get_submodule(getattr(record.layer, slot))
        for number, old in enumerate(layers)
        for slot in _SLOTS
    }
    modules["norm"] = embeddings.get_submodule("LayerNorm")
    narrow = _embedding_width(model) != model.config.hidden_size
    # ALBERT has one at equal widths too.
    if shape.projection is not None and (narrow or record.shared_layers):
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
    return found


def _typed(given: Parts, wanted: Parts) -> Parts:
    """With as many token types and positions as the student has. Types that it has not go into its positions, those of
    the first text, so that a single text gives what it gave.
    """
    position, types = given["position"][: len(wanted["position"])], given.get("type")
    if "type" not in wanted:
        return given | {"position": position if types is None else position + types[0]}
    if types is None:
        types = torch.zeros_like(position[:1])
    rows = [min(row, len(types) - 1) for row in range(len(wanted["type"]))]
    return given | {"position": position, "type": types[rows]}


def _identity(given: Parts, wanted: Parts) -> Parts:
    """A projection that changes nothing, where the teacher has none (ALBERT has one at equal widths too)."""
    if "projection.weight" not in wanted or "projection.weight" in given:
        return {}
    size = len(wanted["projection.weight"])
    return {"projection.weight": torch.eye(size), "projection.bias": torch.zeros(size)}


def _factorized(given: Parts, wanted: Parts, teacher: Any) -> Parts:
    """Embeddings of another width than the teacher's: tables, norm, projection, and the head's part of that width.

    The student's tables are the teacher's in the directions of their greatest variance (the truncated singular value
    decomposition of the table of tokens; Lan et al. 2020, arXiv 1909.11942, section 3.1, factorize it, untrained); its
    projection is the least-squares fit, over the vocabulary, to what the teacher's first layer is given.
    """
    width, hidden = wanted["word"].shape[1], wanted["0.query.weight"].shape[1]
    wide: Parts = {name: given[name] for name in ("word", "position", "type") if name in given}
    if "projection.weight" in given:
        wide = {name: table @ given["projection.weight"].T for name, table in wide.items()}
    wide = {name: _narrowed(table, (len(table), hidden), teacher) for name, table in wide.items()}
    _, directions = torch.linalg.eigh((wide["word"].T @ wide["word"]).double())
    basis = directions.flip(1)[:, :width].to(wide["word"].dtype)  # [hidden, width]
    found = {name: table @ basis for name, table in wide.items()}
    one, zero = torch.ones(width), torch.zeros(width)
    found |= {"norm.weight": one, "norm.bias": zero, "mlm_norm.weight": one, "mlm_norm.bias": zero}
    if "projection.weight" in wanted:
        inputs = F.layer_norm(_embedded(found), (width,))
        outputs = F.layer_norm(_embedded(given), given["norm.weight"].shape, given["norm.weight"], given["norm.bias"])
        if "projection.weight" in given:
            outputs = outputs @ given["projection.weight"].T + given["projection.bias"]
        outputs = _narrowed(outputs, (len(outputs), hidden), teacher)
        fit = torch.linalg.lstsq(F.pad(inputs, (0, 1), value=1.0), outputs).solution
        found |= {"projection.weight": fit[:-1].T, "projection.bias": fit[-1]}
    if "mlm_dense.weight" in given and given["mlm_dense.weight"].shape[0] == teacher.config.hidden_size:
        dense, bias = given["mlm_dense.weight"], given["mlm_dense.bias"]
        found["mlm_dense.weight"] = basis.T @ _narrowed(dense, (hidden, hidden), teacher)
        found["mlm_dense.bias"] = basis.T @ _narrowed(bias, (hidden,), teacher)
    else:
        found |= {name: wanted[name] for name in ("mlm_dense.weight", "mlm_dense.bias") if name in wanted}
    return found


def _embedded(tables: Parts) -> Tensor:
    """[V, E] every token, each at one position of its own, in the first text."""
    positions = tables["position"][torch.arange(len(tables["word"])) % len(tables["position"])]
    types = tables["type"][0] if "type" in tables else 0
    return tables["word"] + positions + types


def _embedding_width(model: Any) -> int:
    return int(model.get_input_embeddings().weight.shape[1])
