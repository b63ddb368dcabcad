"""Weights of labels in terms that compare with labels, for tasks of which some labels are rare. Without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distill.data.task_types.task_type import MISSING, labelled
from distill.data.task_types.written import spelled_alike
from distill.errors import ConfigError, visible

BALANCED = "balanced"
SHOWN = 8
"""Weights of labels that a line tells."""

ClassWeight = str | Mapping[str, float] | None
"""`BALANCED`, or label -> its weight, where other labels have the weight 1. None weighs all rows equally."""


def checked(given: Any, labels: Sequence[str], spelled: Sequence[str], key: str) -> ClassWeight:
    """The setting `key` of a task with these labels.

    spelled: the same labels as the files spell them, by which they may be named too.

    Raises:
        ConfigError: for a weight of another label, and for two weights of one.
    """
    if not isinstance(given, Mapping):
        return None if given is None else str(given)
    names = dict(zip((*spelled, *labels), (*labels, *labels), strict=True))
    alike = {spelled_alike(name): label for name, label in names.items()}  # a key `true` is no text in YAML
    weights: dict[str, float] = {}
    for name, weight in ((str(each), float(weight)) for each, weight in given.items()):
        label = names.get(name, alike.get(spelled_alike(name)))
        if label is None or label in weights:
            wrong = f"a weight of {name}" if label is None else f"two weights of {label}"
            raise ConfigError(f"{key}: got {wrong}; must be of the labels {', '.join(labels)}; correct the names")
        weights[label] = weight
    return weights


def of_labels(given: ClassWeight, targets: np.ndarray, labels: Sequence[str]) -> np.ndarray | None:
    """[labels] float32 the weight of each label; None without weights.

    Balanced classes have the weight n / (k n_c) of King and Zeng 2001 (Political Analysis 9), as in scikit-learn, for
    n_c of n rows and k classes that occur; so the mean weight of a row is 1. A label of multi_label has as many rows
    without it as with it: its weight is their ratio, torch's `pos_weight`. Labels that do not occur have the weight 1.

    targets: class numbers of rows or words `[n]`, or 0 and 1 `[n, labels]`; `MISSING` where there is no label.
    """
    if given is None:
        return None
    if given != BALANCED:
        assert isinstance(given, Mapping)
        return np.array([given.get(label, 1.0) for label in labels], np.float32)
    if targets.ndim == 2:
        known = targets[targets[:, 0] != MISSING]
        counts = known.sum(axis=0)
        others = np.where(counts > 0, len(known) - counts, 1)
        # Without a row that lacks the label, the ratio would be 0, and no row would train it.
        return (np.maximum(others, 1) / np.maximum(counts, 1)).astype(np.float32)
    counts = np.bincount(targets[targets != MISSING], minlength=len(labels))
    even = counts.sum() / max(1, int((counts > 0).sum()))
    return np.where(counts > 0, even / np.maximum(counts, 1), 1).astype(np.float32)


def described(weights: np.ndarray, labels: Sequence[str]) -> str:
    """`weights of labels: unsafe 12.5, safe 0.52`, the largest first; of many labels the first and the last."""
    named = [f"{visible(labels[n])} {weights[n]:.3g}" for n in np.argsort(-weights, kind="stable").tolist()]
    left_out = len(named) - SHOWN
    shown = ", ".join(named if left_out < 2 else [*named[: SHOWN - 1], f"{left_out} others", named[-1]])
    return f"weights of labels: {shown}"


def arrays(labels: np.ndarray, weights: np.ndarray | None, targets: np.ndarray) -> dict[str, np.ndarray]:
    """The arrays that a batch with these labels [R] has for terms against them: the numbers of the rows with a label,
    if some have none, and the weights of its `targets`, if there are any."""
    given = labelled(labels)
    numbers = {} if given.all() else {"labelled": np.flatnonzero(given)}
    return numbers if weights is None else numbers | {"label_weights": of_rows(weights, targets)}


def of_rows(weights: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """[R] float32 the weight of each row of `TaskType.on_labels`: of multi_label a row for each label.

    weights: [labels]; targets: as for `of_labels`.
    """
    if targets.ndim == 2:
        return np.where(targets == 1, weights, np.float32(1)).ravel()
    return np.where(targets == MISSING, np.float32(1), weights[np.maximum(targets, 0)])
