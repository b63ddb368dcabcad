"""Smaller forms of the vectors of an embedder: their first components, rounded to int8, or their signs.

- The first k components, scaled to length 1 again: the use of Matryoshka representations (Kusupati et al. 2022, arXiv
  2205.13147). Models trained for it keep more.
- int8: each vector is scaled so that its largest component is 127, and rounded. The scale is not stored, because
  cosines do not depend on it.
- binary: the sign of each component, one bit. The cosine of vectors of signs falls by the same amount with each bit
  that differs, so that it orders texts as the Hamming distance does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from distill.data.tasks import TaskData
from distill.evaluation import retained
from distill.evaluation.kind_results import VectorForm

DIMENSIONS = (64, 128, 256)
LARGEST = 127
"""Of int8, whose -128 is not used."""


@dataclass(frozen=True)
class Form:
    """A way to store vectors."""

    name: str
    bytes: int
    """Of one vector."""
    stored: Callable[[np.ndarray], np.ndarray]
    """Vectors [n, D] as floats -> what is stored, as floats. They are compared by their cosines."""


def forms(width: int) -> Iterator[Form]:
    """The forms of vectors of `width` components, the whole vectors first."""
    yield Form("float32", 4 * width, partial(first, width))
    for count in reversed([count for count in DIMENSIONS if count < width]):
        yield Form(f"first {count} components", 4 * count, partial(first, count))
    yield Form("int8", width, rounded)
    yield Form("binary", -(-width // 8), signs)


def first(count: int, vectors: np.ndarray) -> np.ndarray:
    """The first components [n, count] of vectors [n, D]."""
    return vectors[:, :count]


def rounded(vectors: np.ndarray) -> np.ndarray:
    """Vectors [n, D] in int8, as float32."""
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    return np.round(vectors * (LARGEST / np.maximum(largest, 1e-12))).astype(np.float32)


def signs(vectors: np.ndarray) -> np.ndarray:
    """1 where a component of the vectors [n, D] is above 0, else -1: float32 [n, P], with ones up to the next power P
    of 4.

    Scaled to length 1, these components are then powers of 2, so that no cosine is rounded and equal Hamming distances
    give equal cosines. The cosine is 1 - 2 h / P, for h bits that differ.
    """
    bits = np.where(vectors > 0, np.float32(1), np.float32(-1))
    width = bits.shape[1]
    exact = next(4**power for power in itertools.count() if 4**power >= width)
    return np.pad(bits, ((0, 0), (0, exact - width)), constant_values=1)


def scores(
    outputs: Mapping[tuple[str, str], np.ndarray],
    graded: Callable[[tuple[str, str], np.ndarray], tuple[np.ndarray, np.ndarray]],
    metrics: dict[str, tuple[str, ...]],
) -> dict[str, dict[str, VectorForm]]:
    """Task -> form of vectors -> its bytes and its scores.

    Args:
        outputs: (task, split) -> [n, 2 D] the vectors of both texts of each row.
        graded: (task, split), outputs -> predictions and labels of the rows.
        metrics: task -> its metrics.
    """
    result: dict[str, dict[str, VectorForm]] = {}
    for task in dict.fromkeys(name for name, _ in outputs):
        own = {key: each for key, each in outputs.items() if key[0] == task}
        width = next(iter(own.values())).shape[1] // 2
        result[task] = {}
        for form in forms(width):
            pairs = {key: (form.stored(each[:, :width]), form.stored(each[:, width:])) for key, each in own.items()}
            predictions = {key: graded(key, np.concatenate(both, axis=1)) for key, both in pairs.items()}
            result[task][form.name] = VectorForm(form.bytes, retained.scores(predictions, metrics)[task])
    return result


def of_tasks(
    outputs: Mapping[tuple[str, str], tuple[np.ndarray, np.ndarray]],
    tasks: Mapping[str, TaskData],
    metrics: dict[str, tuple[str, ...]],
) -> dict[str, dict[str, VectorForm]]:
    """`scores` of the tasks of embedders. `outputs`: (task, split) -> outputs and labels."""
    separate = {key: each for key, (each, _) in outputs.items() if tasks[key[0]].task.kind.separate}

    def graded(key: tuple[str, str], stored: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        labels = outputs[key][1]
        return tasks[key[0]].task.graded(stored, labels), labels

    return scores(separate, graded, metrics)
