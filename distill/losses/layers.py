"""Which layers the terms of a loss compare, and the linear maps that are trained where widths differ."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from torch import nn

from distill.errors import ConfigError
from distill.losses.terms import Term
from distill.models import families


def compared_layers(
    terms: Mapping[str, Term], student: nn.Module, teacher: nn.Module, kept: Sequence[int] | None
) -> dict[str, list[tuple[int, int]]]:
    """Pairs of layers that each term compares. Raises ConfigError for terms that cannot compare these two models."""
    depths = families.depth(student), families.depth(teacher)
    if kept is not None and not (len(kept) == depths[0] and all(0 <= each < depths[1] for each in kept)):
        raise ConfigError(
            f"layer_map: got {[*kept]}; must be {depths[0]} numbers of layers from 0 to {depths[1] - 1}, one for each "
            "layer of the student; correct it"
        )
    pairs = {name: term.pairs(*depths, kept) for name, term in terms.items() if term.kind.inside}
    errors = [e for name in pairs for e in _problems(f"terms.{name}", terms[name], pairs[name], student, teacher)]
    if errors:
        raise ConfigError(errors)
    return pairs


def _problems(
    key: str, term: Term, pairs: list[tuple[int, int]], student: nn.Module, teacher: nn.Module
) -> Iterator[str]:
    """A line for each reason why the term, of setting `key`, cannot compare these two models."""
    both = student, teacher
    depths, heads, widths = ([f(model) for model in both] for f in (families.depth, families.heads, families.width))
    if term.kind.layers and not depths[0]:
        yield (
            f"{key}.features: got {term.features}; must be pooled on a corpus, and logits or vectors on tasks, for a "
            "student without layers; leave the term out"
        )
        return
    if any(student_layer >= depths[0] or teacher_layer >= depths[1] for student_layer, teacher_layer in pairs):
        if isinstance(term.layers, str):
            yield f"{key}.teacher_layer: got {term.teacher_layer}; must be < {depths[1]}, the teacher's layers"
        else:
            yield (
                f"{key}.layers: got {[list(pair) for pair in pairs]}; must be pairs of a student's layer < "
                f"{depths[0]} and a teacher's layer < {depths[1]}, counted from 0; leave the others out"
            )
    if term.kind.equal_heads and heads[0] != heads[1]:
        yield (
            f"{key}.features: got {term.features}; must be relations where student and teacher have {heads[0]} and "
            f"{heads[1]} heads; use the term relations instead"
        )
    split = term.heads or heads[0]
    if term.kind.splits_heads and any(width % split for width in widths):
        yield (
            f"{key}.heads: got {split}; must divide the widths of student and teacher, {widths[0]} and "
            f"{widths[1]}; set {math.gcd(*widths)} or a divisor of it"
        )


def check_names(names: Iterable[str]) -> None:
    """Raise ConfigError for the name of a term that torch allows for no part of a module."""
    nothing = nn.ModuleDict()
    if (wrong := next((name for name in names if not name or "." in name or hasattr(nothing, name)), None)) is not None:
        raise ConfigError(
            f"terms.{wrong}: got a term of this name, which a trained part of the loss cannot have in torch; must be "
            f"another; rename it, e.g. term_{wrong.replace('.', '_')}"
        )


def projections(
    student: nn.Module,
    teacher: nn.Module | None,
    terms: Mapping[str, Term],
    channels: Sequence[int] | None = None,
) -> nn.ModuleDict:
    """A trained linear map for each term on hidden states, if student and teacher have different widths.

    The regressor of Romero et al. 2015, arXiv 1412.6550, section 2.2, and W_h of Jiao et al. 2020, arXiv 1909.10351,
    equation 8. With `channels`, the teacher's channels that the student's were copied from, a map starts by comparing
    each channel with its original (CoFi, Xia et al. 2022, arXiv 2204.00408, starts from the identity). The maps are not
    part of the saved student.
    """
    if teacher is None:
        return nn.ModuleDict()
    width, teacher_width = families.width(student), families.width(teacher)
    if width == teacher_width:
        return nn.ModuleDict()
    like = next(student.parameters())
    maps = {
        name: nn.Linear(width, teacher_width, bias=False, device=like.device, dtype=like.dtype)
        for name, term in terms.items()
        if term.kind.projected and not term.of_batch  # distances and angles are those of other widths too
    }
    check_names(maps)
    if channels is not None:
        for linear in maps.values():
            nn.init.zeros_(linear.weight)
            linear.weight.data[list(channels), range(width)] = 1.0
    return nn.ModuleDict(maps)
