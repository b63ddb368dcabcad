"""Detection of a label: log-odds that tell the rows with it from the others, and predictions with its own threshold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

LARGEST = 27.0
"""Log-odds beyond which rows are not told apart by a threshold: the probability of larger ones is rounded to 1."""


@dataclass(frozen=True)
class Detecting:
    """How a kind of task detects labels."""

    odds: Callable[[np.ndarray, Sequence[str]], dict[str, np.ndarray]]
    """(outputs [n, outputs], labels) -> label -> [n] the log-odds that a row has it, float64; empty where the labels
    are more than two classes."""
    decided: Callable[[dict[str, Any], Mapping[str, bool]], dict[str, Any]]
    """(prediction of a row, label -> whether the row reaches its threshold) -> the prediction with these labels."""
    several: bool
    """Whether several labels may be detected at a time."""


def detectable(detecting: Detecting | None, labels: Sequence[str]) -> list[str]:
    """The labels of a task that may be detected: none of a kind without `Detecting`, or of other than two classes."""
    return [] if detecting is None else [*detecting.odds(np.zeros((0, len(labels))), labels)]


def reached(odds: np.ndarray, threshold: float) -> np.ndarray:
    """[n] whether log-odds [n] reach a probability, of more than 0 and less than 1."""
    return np.clip(odds, -LARGEST, LARGEST) >= np.log(threshold / (1 - threshold))


def _of_two(outputs: np.ndarray, labels: Sequence[str]) -> dict[str, np.ndarray]:
    if len(labels) != 2:
        return {}
    first, second = outputs.astype(np.float64).T
    return {labels[0]: first - second, labels[1]: second - first}


def _one(answer: dict[str, Any], found: Mapping[str, bool]) -> dict[str, Any]:
    ((label, flag),) = found.items()
    scores = answer["scores"]
    chosen = next(name for name in scores if (name == label) == flag)
    return answer | {"label": chosen, "score": scores[chosen]}


def _of_each(outputs: np.ndarray, labels: Sequence[str]) -> dict[str, np.ndarray]:
    return dict(zip(labels, outputs.astype(np.float64).T, strict=True))


def _any(answer: dict[str, Any], found: Mapping[str, bool]) -> dict[str, Any]:
    chosen = {label for label in answer["labels"] if label not in found} | {label for label in found if found[label]}
    return answer | {"labels": [label for label in answer["scores"] if label in chosen]}


OF_TWO = Detecting(_of_two, _one, several=False)
"""Either of two classes."""
OF_EACH = Detecting(_of_each, _any, several=True)
"""Each of any number of labels."""
