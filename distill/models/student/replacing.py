"""Module replacing: a student's layers in place of groups of its teacher's layers, at random and more and more often.

BERT-of-Theseus: Xu et al. 2020, arXiv 2002.02925, section 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from distill.models import families

Part = TypeVar("Part")


class Replacing(nn.Module):
    """Runs a student within its teacher, and trains the student's layers alone.

    A student of n layers divides the m layers of its teacher into n groups of neighbours: layer i stands for the layers
    from round(i m / n) up to round((i + 1) m / n). In a step, each group is replaced by the student's layer with the
    probability p, by a draw of its own (equations 3 and 4). p rises from `rate` to 1 over the training, p = min(1, k t
    + b) with b = rate and k = (1 - rate) / total (curriculum replacement, equation 6). The teacher's layers, the
    embeddings and the head do not change; the teacher's layers have no dropout. With p = 0 the outputs are the
    teacher's, with p = 1 the student's own.

    The draws depend on seed and step alone. So they are the same in all processes, in all parts of a step, and after a
    training was resumed. A layer that was not drawn has the gradient 0 and not None, so that all processes exchange the
    same gradients and a step without any draw has one too.

    Args:
        student: made from the teacher by `from_teacher`: of its family and width, with its embeddings and its head.
        teacher: a model with the same kind of head, on the student's device. It is not saved and not trained.
        rate: p at the first step, from 0 to 1.
        total: number of steps of the training.
    """

    def __init__(self, student: Any, teacher: Any, *, rate: float, seed: int, total: int) -> None:
        super().__init__()
        self.rate, self.seed, self.total = rate, seed, total
        self.teacher = (teacher.eval().requires_grad_(False),)  # a tuple, so that it is not a part of what is trained
        student.requires_grad_(False)
        for layer in families.layers(student):
            layer.requires_grad_(True)

    def drawn(self, count: int, progress: float) -> list[bool]:
        """For each of `count` groups, whether the student's layer replaces it at the step after the share `progress`
        of the training."""
        rate = self.rate + (1 - self.rate) * progress
        random = np.random.default_rng([self.seed, round(progress * self.total)])
        return (random.random(count) < rate).tolist()

    @contextmanager
    def on(self, student: Any, progress: float) -> Iterator[None]:
        """Within the context, `student` is run as it is at the step after the share `progress` of the training."""
        teacher, own = self.teacher[0], families.layers(student)
        draws = self.drawn(len(own), progress)
        mixed = _mixed(own, families.layers(teacher), draws)
        # The teacher's encoder runs the student's layers, and not the reverse: it has what all of its layers read, such
        # as the rotations of local attention, of which a student with global layers alone has none.
        record, encoder = families.family_of(student), families.encoder(teacher)
        # The encoder makes the mask, which each implementation of attention reads in another form.
        if teacher.config._attn_implementation != student.config._attn_implementation:
            teacher.set_attn_implementation(student.config._attn_implementation)
        before, original = families.encoder(student), encoder.get_submodule(record.layers)
        values = _settings(student.config, teacher.config, draws, record.shared_layers)
        config = {name: getattr(teacher.config, name) for name in values}
        student.set_submodule(record.encoder, encoder)
        encoder.set_submodule(record.layers, nn.ModuleList(mixed))
        _set(teacher.config, values)
        undrawn = [layer for layer, replaces in zip(own, draws, strict=True) if not replaces]
        try:
            with mixed[-1].register_forward_hook(_connected(undrawn)):
                yield
        finally:
            _set(teacher.config, config)
            encoder.set_submodule(record.layers, original)
            student.set_submodule(record.encoder, before)


def _settings(student: Any, teacher: Any, draws: list[bool], shared: bool) -> dict[str, Any]:
    """What the encoder reads of the teacher's config while it runs these layers, beside the layers themselves."""
    values: dict[str, Any] = {}
    if getattr(teacher, "layer_types", None):
        values["layer_types"] = _mixed(student.layer_types, teacher.layer_types, draws)
    if shared:  # each of its layers is a group of its own
        count = len(_mixed(range(student.num_hidden_layers), range(teacher.num_hidden_layers), draws))
        values |= dict.fromkeys(("num_hidden_layers", "num_hidden_groups"), count)
    return values


def _set(config: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(config, name, value)


def _mixed(student: Sequence[Part], teacher: Sequence[Part], draws: list[bool]) -> list[Part]:
    """What there is for each layer: the student's for each group that was drawn, and the teacher's of the others."""
    ends = [round(number * len(teacher) / len(student)) for number in range(len(student) + 1)]
    groups = [teacher[first:last] for first, last in pairwise(ends)]
    parts = ([layer] if replaces else group for layer, group, replaces in zip(student, groups, draws, strict=True))
    return [layer for part in parts for layer in part]


def _connected(layers: list[nn.Module]) -> Any:
    """A hook of a module that gives the parameters of `layers` the gradient 0."""
    parameters = [parameter for layer in dict.fromkeys(layers) for parameter in layer.parameters()]

    def hook(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        if not parameters:
            return output
        first: Tensor = output[0] if isinstance(output, tuple) else output
        nothing = torch.stack([parameter.reshape(-1)[0] * 0 for parameter in parameters]).sum()
        first = first + nothing.to(first.dtype)
        return (first, *output[1:]) if isinstance(output, tuple) else first

    return hook
