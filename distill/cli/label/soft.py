"""The outputs of a teacher as a column of soft labels, in the form that `tasks.soft_label` reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from distill.data.task_types import TaskType
from distill.data.task_types.task_type import probabilities
from distill.errors import ConfigError


def _numbers(outputs: np.ndarray, labels: Sequence[str]) -> pa.Array:
    return pa.array(outputs[:, 0].astype(np.float64), mask=_without(outputs))


def _softmax(outputs: np.ndarray, labels: Sequence[str]) -> pa.Array:
    return _of_labels(probabilities(outputs), labels)


def _sigmoid(outputs: np.ndarray, labels: Sequence[str]) -> pa.Array:
    return _of_labels(np.exp(-np.logaddexp(0, -outputs.astype(np.float64))), labels)


def _without(values: np.ndarray) -> np.ndarray:
    """[n] whether a row has no soft label, as its outputs are NaN."""
    flags: np.ndarray = np.isnan(values).any(axis=1)
    return flags


def _of_labels(values: np.ndarray, labels: Sequence[str]) -> pa.Array:
    """For each row an object, with the probability of each label in the order of the outputs. A list where labels have
    no names, so that `tasks.labels` can name them."""
    mask = pa.array(_without(values))
    if unnamed(labels):
        starts = pa.array(np.arange(len(values) + 1, dtype=np.int32) * values.shape[1])
        return pa.ListArray.from_arrays(starts, pa.array(values.ravel()), mask=mask)
    columns = [pa.array(np.ascontiguousarray(column)) for column in values.T]
    return pa.StructArray.from_arrays(columns, list(labels), mask=mask)


def unnamed(labels: Sequence[str]) -> bool:
    """Whether labels are the numbers of the outputs, as of a teacher that has no names for them."""
    return bool(labels) and tuple(labels) == tuple(map(str, range(len(labels))))


SOFT: dict[str, Callable[[np.ndarray, Sequence[str]], pa.Array]] = {
    "classification": _softmax,
    "multi_label": _sigmoid,
    "regression": _numbers,
    "reranking": _numbers,
}
"""Kind of task -> (outputs [n, outputs], names of labels) -> soft labels [n], in float64, so that little is lost of
probabilities near 1. A row of NaN has none (null)."""


def check(kind: TaskType, labels: Sequence[str]) -> None:
    """Raise ConfigError for a teacher whose outputs cannot be soft labels."""
    if kind.name not in SOFT or kind.soft is None:
        raise ConfigError(
            f"TEACHER: got a model for {kind.name}; must be for {', '.join(SOFT)}, whose outputs are written as soft "
            "labels; use the model itself as the teacher of a run (teacher.name)"
        )
    if len({label.strip() for label in labels}) < len(labels):
        raise ConfigError(
            "TEACHER: got two labels of one name; must be different names; correct id2label in its config.json"
        )
