"""The outputs of a model as a column of soft labels, in the form in which `TaskType.soft` reads it. Without torch.

Each function is a `TaskType.soft_column`. Numbers of texts are float64, so that little is lost of probabilities near 1.
A row, or a word, of NaN has no soft label (null).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distill.data import arrow as pa
from distill.data.task_types.answers import NONE
from distill.data.task_types.task_type import probabilities


def numbers(outputs: np.ndarray, labels: Sequence[str], sizes: np.ndarray | None) -> pa.Array:
    """[n] the output of each row, of outputs [n, 1]."""
    return pa.array(outputs[:, 0].astype(np.float64), mask=_without(outputs))


def softmax(outputs: np.ndarray, labels: Sequence[str], sizes: np.ndarray | None) -> pa.Array:
    """[n] the probability of each label, of logits [n, labels]."""
    return _of_labels(probabilities(outputs), labels)


def sigmoid(outputs: np.ndarray, labels: Sequence[str], sizes: np.ndarray | None) -> pa.Array:
    """[n] the probability of each label by itself, of logits [n, labels]."""
    return _of_labels(np.exp(-np.logaddexp(0, -outputs.astype(np.float64))), labels)


def words(outputs: np.ndarray, labels: Sequence[str], sizes: np.ndarray | None) -> pa.Array:
    """[n] a list of the probabilities of each word's tags, of logits [words, labels]; null for a word whose outputs are
    0, as the tokenizer drops it, and for a text of which a word has NaN."""
    assert sizes is not None
    bad = np.add.reduceat(np.append(_without(outputs), False), np.cumsum(sizes) - sizes) if len(sizes) else sizes
    bad = (bad > 0) & (sizes > 0)  # of an empty part, reduceat returns the value after it
    read = np.where((outputs == 0).all(axis=1, keepdims=True), np.nan, probabilities(outputs))
    return _lists(_of_labels(read.astype(np.float32), labels), sizes, bad)


def choices(outputs: np.ndarray, labels: Sequence[str], sizes: np.ndarray | None) -> pa.Array:
    """[n] a list of the probabilities of each question's choices, of logits [n, most choices]."""
    assert sizes is not None
    inside = np.arange(outputs.shape[1]) < sizes[:, None]
    return _lists(pa.array(probabilities(outputs)[inside]), sizes, _without(outputs))


def spans(outputs: np.ndarray, labels: Sequence[str], sizes: np.ndarray | None) -> pa.Array:
    """[n] a list of candidates for each answer, of [spans, 3] first character, end and probability, as from
    `answers.candidates`."""
    assert sizes is not None
    none = outputs[:, 0] == NONE
    bad = np.add.reduceat(np.append(_without(outputs), False), np.cumsum(sizes) - sizes) > 0
    fields = [pa.array(outputs[:, side].clip(0).astype(np.int32), mask=none) for side in (0, 1)]
    return _lists(pa.StructArray.from_arrays([*fields, pa.array(outputs[:, 2])], ["start", "end", "score"]), sizes, bad)


def unnamed(labels: Sequence[str]) -> bool:
    """Whether labels are the numbers of the outputs, as of a model that has no names for them."""
    return bool(labels) and tuple(labels) == tuple(map(str, range(len(labels))))


def _without(values: np.ndarray) -> np.ndarray:
    """[n] whether a row has no soft label, as its outputs are NaN."""
    return np.isnan(values).any(axis=1)


def _of_labels(values: np.ndarray, labels: Sequence[str]) -> pa.Array:
    """For each row an object, with the probability of each label in the order of the outputs. A list where labels have
    no names, so that `tasks.labels` can name them."""
    mask = pa.array(_without(values))
    if unnamed(labels):
        return _lists(pa.array(values.ravel()), np.full(len(values), values.shape[1]), _without(values))
    columns = [pa.array(np.ascontiguousarray(column)) for column in values.T]
    return pa.StructArray.from_arrays(columns, list(labels), mask=mask)


def _lists(values: pa.Array, sizes: np.ndarray, without: np.ndarray) -> pa.Array:
    """[n] lists of these sizes; null for flagged rows."""
    ends = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
    return pa.ListArray.from_arrays(ends, values, mask=pa.array(np.asarray(without, np.bool_)))
