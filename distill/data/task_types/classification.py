"""Classification of one or two texts into one of any number of classes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from distill.data import arrow as pa
from distill.data import arrow_compute as pc
from distill.data.task_types.detecting import OF_TWO
from distill.data.task_types.soft import log_probabilities
from distill.data.task_types.soft_written import softmax
from distill.data.task_types.task_type import (
    MISSING,
    PROBABILITIES,
    TaskType,
    Where,
    Words,
    distinct,
    is_number,
    is_text,
    likeliest,
    probabilities,
    recalled,
    total_variation,
)
from distill.data.task_types.written import names as names_in
from distill.data.task_types.written import read_names, spelled_alike
from distill.errors import DataError


def _encode(column: pa.ChunkedArray, labels: Sequence[str], where: Where, key: str) -> np.ndarray:
    names = _in_spelling(names_in(column), labels)
    numbers = pc.index_in(names, value_set=pa.array(labels, pa.string()))
    unknown = pc.and_(pc.is_valid(names), pc.is_null(numbers))
    if pc.any(unknown).as_py():
        row = pc.index(unknown, True).as_py()
        raise DataError(
            f"{where(row)}: got label {names[row].as_py()!r}; must be one of {', '.join(labels)}; correct the row, or "
            f"list all labels in {key.rpartition('.')[0]}.labels"
        )
    return pc.fill_null(numbers, MISSING).to_numpy().astype(np.int64)


def _in_spelling(names: pa.ChunkedArray, labels: Sequence[str]) -> pa.ChunkedArray:
    """The labels [rows], as `labels` spell those that differ from one of these in case or spaces alone."""
    alike = {spelled_alike(label): label for label in labels}
    others = {name: alike.get(spelled_alike(name), name) for name in {*distinct(names)} - {*labels}}
    if len(alike) < len(labels) or all(name == label for name, label in others.items()):
        return names
    places = pc.index_in(names, value_set=pa.array([*others], pa.string()))
    return pc.coalesce(pc.take(pa.array([*others.values()], pa.string()), places), names.cast(pa.string()))


def _accepts(data_type: pa.DataType) -> bool:
    return is_text(data_type) or is_number(data_type) or pa.types.is_boolean(data_type) or pa.types.is_null(data_type)


def _answer(
    outputs: np.ndarray, labels: Sequence[str], threshold: float, words: Sequence[Words]
) -> list[dict[str, Any]]:
    """The most probable label with its probability, and the probability of every label."""
    scores = probabilities(outputs).tolist()
    best = outputs.argmax(axis=1).tolist()
    return [
        {"label": labels[number], "score": row[number], "scores": dict(zip(labels, row, strict=True))}
        for number, row in zip(best, scores, strict=True)
    ]


CLASSIFICATION = TaskType(
    name="classification",
    summary="chooses one of several classes",
    problem="single_label_classification",
    metrics=("accuracy", "f1_macro"),
    all_metrics=("accuracy", "f1", "f1_macro", "matthews"),
    accepts=_accepts,
    settings=("labels", "soft_label", "class_weight"),
    form="text, whole numbers or booleans",
    encode=_encode,
    decode=likeliest,
    answer=_answer,
    difference=total_variation,
    measure=PROBABILITIES,
    brief=lambda answer: f"{answer['label']} {answer['score']:.2f}",
    same=operator.eq,
    shown=lambda target, labels, parts: labels[target],
    names=lambda column: {*distinct(names_in(column))},
    recalled=recalled,
    detecting=OF_TWO,
    soft=log_probabilities,
    soft_column=softmax,
    read=read_names,
)
