"""Splits without labels, and splits of which the labels are hidden: each row has what stands for none, as in the test
splits of benchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from distill import config
from distill.data.files import Table
from distill.data.splits import DEVELOPMENT, Split, targets_of
from distill.data.task_types import TaskType, labelled
from distill.errors import DataError

CHANCE = 1e-6
"""So many rows without any label are less probable than this, by their share of the training rows (with one more of
each, as in Laplace's rule of succession)."""


def with_any_label(
    splits: dict[str, Split],
    settings: config.Task,
    kind: TaskType,
    labels: Sequence[str],
    notes: list[str],
    name: str,
) -> dict[str, Split]:
    """The splits, without those of a folder that have no label at all, as the test splits of benchmarks."""
    named = {"train", DEVELOPMENT, *(s for s in splits if settings.rows or getattr(settings, s, None) is not None)}
    empty = [s for s, part in splits.items() if s not in named and not labelled(targets_of(part)).any()]
    notes += [f"{name}: the split {split} has no labels, and is left out" for split in empty]
    unknown = [s for s in hidden(splits, kind, labels) if s not in named and s not in empty]
    notes += [
        f"{name}: the split {split} is left out, as each of its rows has {kind.nothing_is}, which seems to stand for "
        "hidden labels"
        for split in unknown
    ]
    return {split: part for split, part in splits.items() if split not in (*empty, *unknown)}


def check_hidden(
    splits: dict[str, Split], tables: Mapping[str, Table], kind: TaskType, labels: Sequence[str], key: str
) -> None:
    """Raise DataError for a split that the settings name, and whose labels are hidden."""
    usual = _given(splits["train"], kind, labels) if kind.nothing is not None and "train" in splits else None
    for split in hidden(splits, kind, labels):
        if split in tables and not (usual is not None and usual.any()):
            raise DataError(
                f"{', '.join(tables[split].files)}: got rows of which each has {kind.nothing_is}, which seems to stand "
                f"for hidden labels; must have labels; leave {key}.{split} out, or give rows with labels"
            )


def hidden(splits: Mapping[str, Split], kind: TaskType, labels: Sequence[str]) -> list[str]:
    """The splits, besides `train`, with labels that are hidden."""
    if kind.nothing is None:
        return []
    found = {name: _given(part, kind, labels) for name, part in splits.items()}
    usual = found.get("train", np.zeros(0, np.bool_))
    share = (usual.sum() + 1) / (len(usual) + 2)
    others = ((name, rows) for name, rows in found.items() if name != "train" and len(rows))
    return [name for name, rows in others if rows.all() and share ** len(rows) < CHANCE]


def _given(split: Split, kind: TaskType, labels: Sequence[str]) -> np.ndarray:
    """[n] whether each row with a label states nothing by it."""
    assert kind.nothing is not None
    targets = targets_of(split)
    return kind.nothing(targets[labelled(targets)], labels)
