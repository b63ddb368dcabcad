"""Building a student out of a teacher: fewer layers, everything else the same."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from distill import family
from distill.config import ConfigError


def half_depth(n: int) -> list[int]:
    """Half of `n` layers, evenly spaced from the first to the last: 12 -> [0, 2, 4, 7, 9, 11].

    After Sanh et al. 2019, arXiv 1910.01108, section 3, who take one layer out of two.
    """
    count = max(n // 2, 1)
    return [round(i * (n - 1) / max(count - 1, 1)) for i in range(count)]


def from_teacher(model: Any, layers: Sequence[int], *, init: str, seed: int, dropout: float | None = None) -> Any:
    """A student of the teacher's class with `len(layers)` layers, float32, on the teacher's device.

    `model` is a transformers language model or classifier; it is left as it was. With init
    `teacher_layers` the student's layers are copies of the teacher's `layers` (numbers from 0), and
    embeddings and heads are copies too; with `random` all of it is drawn anew from `seed`. Raises
    ConfigError for layers that the teacher does not have.
    """
    depth = len(family.layers(model))
    check_layers(layers, depth)
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = len(layers)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        student = type(model)(config)
    if init == "teacher_layers":
        student.load_state_dict(_selected(model, layers))
    if dropout is not None:
        set_dropout(student, dropout)
    return student.to(model.device)


def check_layers(layers: Sequence[int], depth: int) -> None:
    """ConfigError unless `layers` are distinct ascending layer numbers below `depth`."""
    ascending = list(layers) == sorted(set(layers))
    if not layers or not ascending or layers[0] < 0 or layers[-1] >= depth:
        shown = ",".join(map(str, layers))
        example = ",".join(map(str, half_depth(depth)))
        raise ConfigError(
            f"student.layers: got [{shown}]; must be distinct ascending layer numbers of the "
            f"teacher, 0 to {depth - 1}; set student.layers=[{example}] or leave it out for half of them"
        )


def set_dropout(model: nn.Module, p: float) -> None:
    """Set every dropout of the model to probability `p`, that of the attention weights too.

    The config is left alone, so that a checkpoint keeps the model's own dropout.
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout):  # the attention kernels read p from such a module too
            module.p = p


def _selected(model: Any, layers: Sequence[int]) -> dict[str, Tensor]:
    """State of the teacher with the chosen layers renumbered and the others left out."""
    record = family.family_of(model)
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
