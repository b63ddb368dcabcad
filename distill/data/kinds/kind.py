"""What a kind of task is: its labels, the rows that losses compare, its predictions and its metrics. Without torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

Where = Callable[[int], str]
"""Row of a table, from 0 -> its file and its number there."""

MISSING = -100
"""Class number of a row without a label: the number that torch's cross-entropy ignores."""


@dataclass(frozen=True)
class Kind:
    """A kind of task. A model outputs [n, outputs] numbers for n texts."""

    name: str
    summary: str
    """What a model of this kind does, in a few words."""
    problem: str
    """`problem_type` of the model's config in transformers."""
    metrics: tuple[str, ...]
    """Metrics of a task that names none. Their mean is the task's score."""
    all_metrics: tuple[str, ...]
    """Metrics that a task of this kind may name."""
    accepts: Callable[[pa.DataType], bool]
    """Whether a label column may have this type. `encode` is only called for columns that do."""
    form: str
    """What such a column contains, in a few words."""
    encode: Callable[[pa.ChunkedArray, Sequence[str], Where, str], np.ndarray]
    """(column, labels, where, setting of the column) -> targets [n] or [n, labels]. Rows without a label have `MISSING`
    or NaN. DataError for a value that is no label."""
    rows: Callable[[Any], Any]
    """Outputs [n, outputs], of torch or numpy, -> logits [R, C] whose softmax is compared; C = 1 is a number."""
    decode: Callable[[np.ndarray, float], np.ndarray]
    """(outputs, threshold) -> predictions of the form of the targets."""
    answer: Callable[[np.ndarray, Sequence[str], float], list[dict[str, Any]]]
    """(outputs, labels, threshold) -> for each text, the prediction that `Model.predict` returns, as JSON values."""
    difference: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """(outputs of a model, of another) -> [n], how far apart they are on each text."""
    brief: Callable[[dict[str, Any]], str]
    """What `answer` returns for a text, in a few words."""
    same: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    """(predictions, predictions or targets) -> [n] whether they are the same. None for numbers, which seldom are."""
    flags: Callable[[np.ndarray, int], np.ndarray] | None = None
    """(predictions or targets, labels) -> [n, labels] whether each label is output. None without labels."""
    named: bool = True
    """Whether the model has one output for each named label. If false, it has one output, a number."""
    averaged: bool = True
    """Whether outputs of several teachers, or of a text's windows, are averaged: as probabilities of classes, of which
    one is right, or as numbers."""
    grouped: bool = False
    """Whether rows with the same first text form a group, which is scored and resampled as a whole."""
    label_rows: Callable[[Any], Any] | None = None
    """Outputs -> logits [R, C] that are compared with labels; `rows` when None."""
    loss_targets: Callable[[np.ndarray], np.ndarray] = np.ravel
    """Targets -> [R] the labels of `label_rows`."""

    def on_labels(self, outputs: Any) -> Any:
        """Outputs [n, outputs] -> logits [R, C] that are compared with `loss_targets`."""
        return (self.label_rows or self.rows)(outputs)

    def truth(self, targets: np.ndarray, first_texts: Sequence[str]) -> np.ndarray:
        """Targets as metrics take them: with the number of its group for each row, if there are groups."""
        return grouped(targets, first_texts) if self.grouped else targets


def total_variation(rows: np.ndarray, other: np.ndarray) -> np.ndarray:
    """[R] distance of the probabilities of logits [R, C] from those of other logits, 0 to 1: half the sum of the
    absolute differences."""
    distance: np.ndarray = np.abs(_probabilities(rows) - _probabilities(other)).sum(axis=1) / 2
    return distance


def _probabilities(rows: np.ndarray) -> np.ndarray:
    exponentials = np.exp(rows.astype(np.float64) - rows.max(axis=1, keepdims=True))
    probabilities: np.ndarray = exponentials / exponentials.sum(axis=1, keepdims=True)
    return probabilities


GROUPED = np.dtype([("label", np.float32), ("group", np.int64)])
"""Targets of a kind with groups."""


def grouped(targets: np.ndarray, first_texts: Sequence[str]) -> np.ndarray:
    """[n] of `GROUPED`: rows with the same first text have the same group."""
    result = np.empty(len(targets), GROUPED)
    result["label"] = targets
    numbers: dict[str, int] = {}
    result["group"] = [numbers.setdefault(text.strip(), len(numbers)) for text in first_texts]
    return result


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def labelled(targets: np.ndarray) -> np.ndarray:
    """[n] whether a row has a label."""
    if targets.dtype.names is not None:
        targets = targets["label"]
    first = targets if targets.ndim == 1 else targets[:, 0]
    flags: np.ndarray = ~np.isnan(first) if first.dtype.kind == "f" else first != MISSING
    return flags
