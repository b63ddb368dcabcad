"""The labels that two models have in common. Without torch."""

from __future__ import annotations

import re
from collections.abc import Sequence

from distill.data.labels import head_order
from distill.data.task import Task
from distill.data.task_types import Kind
from distill.errors import ConfigError
from distill.models.families.head import Head


def head_of(kind: Kind, labels: Sequence[str], others: Sequence[str]) -> Head:
    """The outputs of a model. They have no names where they are numbered, unless the other model has the same names."""
    default = all(re.fullmatch(r"LABEL_\d+", label) for label in labels)
    numbered = set(labels) != set(others) and list(labels) == [str(number) for number in range(len(labels))]
    return Head(
        len(labels) or kind.outputs, () if default or numbered else tuple(labels), kind.problem, kind.architecture
    )


def common(kinds: tuple[Kind, Kind], labels: tuple[Sequence[str], Sequence[str]]) -> tuple[Head, tuple[int, ...]]:
    """The labels of two models, A and B, in the order of A, and for each of them its output of B.

    Labels are matched by name. Where one model has no names, its outputs are those of the other in order.

    Raises:
        ConfigError: for models of different kinds, or with different labels.
    """
    of_a, of_b = kinds
    if of_a.name != of_b.name:
        raise ConfigError(
            f"B: got a model that {of_b.summary} ({of_b.name}); must be of A's kind, which {of_a.summary} "
            f"({of_a.name}); compare two models of one kind"
        )
    a, b = (head_of(of_a, own, others) for own, others in (labels, labels[::-1]))
    head = Head(a.outputs, a.labels or b.labels, of_a.problem, of_a.architecture)
    names = head.labels or tuple(map(str, range(head.outputs)))
    order = head_order(b, Task("", of_a, (), names if of_a.named else (), ()))
    if order is None:
        raise ConfigError(
            f"B: got labels {', '.join(labels[1])}; must be A's, in any order, which are {', '.join(labels[0])}; "
            "compare models of the same labels"
        )
    return head, order
