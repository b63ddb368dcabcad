"""Latency of two models as they are served: from texts to outputs, timed in turn on rows of the file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from distill.inference import latency
from distill.inference.runners import Batch, Runner

if TYPE_CHECKING:
    from distill.deploy.serve import Model

BATCHES = (1, 8)
TIMED_ROWS = 16
ROUNDS = 15
"""Rounds; each times both models at every batch size."""


def timed(
    models: Sequence[Model], texts: Callable[[np.ndarray], Sequence[Any]], lengths: np.ndarray
) -> list[dict[str, Any]]:
    """Milliseconds of A and B for a batch, and how many times as fast B is, at each size of batch.

    The texts are those of random rows; a batch contains rows of similar length. Tokenizing is included.

    Args:
        texts: numbers of rows -> what `Model.outputs` takes for them.
        lengths: [n] tokens of each row.
    """
    drawn = np.random.default_rng(0).permutation(len(lengths))[:TIMED_ROWS]
    drawn = drawn[np.argsort(lengths[drawn], kind="stable")]
    runners = [_runner(name, model) for name, model in zip("ab", models, strict=True)]
    inputs = {str(size): _batches(texts, drawn, size) for size in BATCHES}
    keyed: dict[latency.Key, dict[str, list[Batch]]] = {
        size: {runner.name: batches for runner in runners} for size, batches in inputs.items()
    }
    times = latency.measure(runners, keyed, repeats=ROUNDS, least_ms=latency.LEAST_MS)
    result = []
    for size, batches in inputs.items():
        of_a, of_b = ([ms / len(batches) for ms in times[name, size]] for name in "ab")
        summaries = {"a": latency.summary(of_a), "b": latency.summary(of_b)}
        row = {"batch": int(size), "rows": len(drawn), **summaries, "speedup": latency.speedup(of_a, of_b)}
        result.append(row)
    return result


def _runner(name: str, model: Model) -> Runner:
    def run(batch: Batch) -> np.ndarray:
        texts = batch["texts"].tolist()
        return model.outputs(texts, len(texts))

    return Runner(name, model.backend, model.scheme, run)


def _batches(texts: Callable[[np.ndarray], Sequence[Any]], numbers: np.ndarray, size: int) -> list[Batch]:
    parts = [numbers[start : start + size] for start in range(0, len(numbers), size)]
    return [{"texts": _array(texts(part))} for part in parts]


def _array(texts: Sequence[Any]) -> np.ndarray:
    """[n] of texts, pairs, texts with choices, or lists of words. `np.array` would make a table of those of the same
    length."""
    result = np.empty(len(texts), object)
    for number, text in enumerate(texts):
        result[number] = text
    return result
