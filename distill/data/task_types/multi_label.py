"""Multi-label classification: any number of labels for one or two texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from distill.data import arrow as pa
from distill.data.task_types.detecting import OF_EACH
from distill.data.task_types.sets import read_sets
from distill.data.task_types.soft import log_odds
from distill.data.task_types.soft_written import sigmoid
from distill.data.task_types.task_type import (
    MISSING,
    PROBABILITIES,
    TaskType,
    Where,
    Words,
    equal_rows,
    is_list,
    is_number,
    is_text,
    recalled,
    total_variation,
)
from distill.errors import DataError

SEPARATORS = re.compile(r"\s*[|;,\n]\s*")
"""What separates labels where a row has them in one text, as in `billing|urgent`."""


def split(value: Any) -> list[str] | None:
    """The labels of a row: a list, or a text of names between separators. None for a row whose labels are unknown
    (null). An empty text or list has no label."""
    if value is None:
        return None
    parts = SEPARATORS.split(value) if isinstance(value, str) else value
    names = [_name(part) for part in parts if part is not None]
    return [name for name in names if name]


def _name(part: Any) -> str:
    """A label as text; the numbers 1 and 1.0 are the same label, as in a classification."""
    if isinstance(part, float) and part.is_integer():
        part = int(part)
    return str(part).lower() if isinstance(part, bool) else str(part).strip()


def _accepts(data_type: pa.DataType) -> bool:
    item = data_type.value_type if is_list(data_type) else data_type
    listed = is_list(data_type) and (is_number(item) or pa.types.is_boolean(item))
    return is_text(item) or pa.types.is_null(item) or listed


def _encode(column: pa.ChunkedArray, labels: Sequence[str], where: Where, key: str) -> np.ndarray:
    numbers = {label: number for number, label in enumerate(labels)}
    targets = np.zeros((len(column), len(labels)), np.int64)
    for row, value in enumerate(column):
        parts = split(value.as_py())
        if parts is None:
            targets[row] = MISSING
            continue
        for part in parts:
            if part not in numbers:
                raise DataError(
                    f"{where(row)}: got label {part!r}; must be of {', '.join(labels)}; correct the row, or list all "
                    f"labels in {key.rpartition('.')[0]}.labels"
                )
            targets[row, numbers[part]] = 1
    return targets


def _rows(outputs: Any) -> Any:
    """Each label is a row of two classes with logits 0 and z: their softmax is the sigmoid of z, so that cross-entropy
    is binary cross-entropy, and KL compares Bernoulli distributions."""
    flat = outputs.reshape(-1, 1)
    if isinstance(flat, np.ndarray):
        return np.concatenate([np.zeros_like(flat), flat], axis=1)
    import torch.nn.functional as F

    return F.pad(flat, (1, 0))


def _decode(outputs: np.ndarray, labels: Sequence[str], threshold: float) -> np.ndarray:
    """1 where the sigmoid of an output is above the threshold."""
    above: np.ndarray = outputs > np.log(threshold / (1 - threshold))
    return above.astype(np.int64)


def _answer(
    outputs: np.ndarray, labels: Sequence[str], threshold: float, words: Sequence[Words]
) -> list[dict[str, Any]]:
    """The labels whose probability is above the threshold, and the probability of every label."""
    scores = (1 / (1 + np.exp(-outputs.astype(np.float64).clip(-700, 700)))).tolist()
    return [
        {
            "labels": [label for label, flag in zip(labels, flags, strict=True) if flag],
            "scores": dict(zip(labels, row, strict=True)),
        }
        for flags, row in zip(_decode(outputs, labels, threshold).tolist(), scores, strict=True)
    ]


def _difference(outputs: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The largest difference of the probabilities of a label."""
    return total_variation(_rows(outputs), _rows(other)).reshape(len(outputs), -1).max(axis=1)


MULTI_LABEL = TaskType(
    name="multi_label",
    summary="chooses any number of labels",
    problem="multi_label_classification",
    metrics=("f1_micro", "f1_macro"),
    all_metrics=("f1_micro", "f1_macro", "accuracy"),
    accepts=_accepts,
    settings=("labels", "threshold", "soft_label", "class_weight"),
    form="lists of labels, or text such as a|b",
    encode=_encode,
    rows=_rows,
    decode=_decode,
    answer=_answer,
    difference=_difference,
    measure=PROBABILITIES,
    brief=lambda answer: (
        ", ".join(f"{label} {answer['scores'][label]:.2f}" for label in answer["labels"]) or "no label"
    ),
    same=equal_rows,
    shown=lambda target, labels, parts: ", ".join(each for each, value in zip(labels, target, strict=True) if value),
    names=lambda column: {name for value in column for name in split(value.as_py()) or ()},
    recalled=recalled,
    detecting=OF_EACH,
    averaged=False,
    soft=log_odds,
    soft_column=sigmoid,
    read=read_sets,
    nothing=lambda targets, labels: (targets == 0).all(axis=1),
    nothing_is="no label",
)
