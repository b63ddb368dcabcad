"""Assigns rows to optimizer steps: a pure function of (seed, epoch), so that processes agree and training can resume.

Rows of similar length are batched together to reduce padding; a batch has as many rows as its token budget allows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from distill.config import Batch
from distill.errors import UserError

POOL = 50
"""Number of batches whose rows are sorted by length together: more means less padding, fewer means more randomness."""
ROUND = 8
"""Padded lengths are multiples of this."""


def epoch_batches(lengths: np.ndarray, batch: Batch, *, seed: int, epoch: int) -> list[np.ndarray]:
    """Row numbers of each batch of one epoch; every row is in exactly one batch.

    Rows x longest length (rounded up to a multiple of 8) is at most `batch.tokens`, unless a single row is longer.
    UserError if there are no rows.
    """
    if len(lengths) == 0:
        raise UserError("data: got no rows to train on; must hold at least one; choose other data")
    random = np.random.default_rng([seed, epoch])
    padded = -(-np.asarray(lengths, dtype=np.int64) // ROUND) * ROUND
    order = random.permutation(len(padded))
    max_rows = min(batch.examples or len(order), max(1, batch.tokens // ROUND))
    typical = max(1, min(max_rows, batch.tokens // max(1, int(padded.mean()))))
    pool = POOL * typical
    batches: list[np.ndarray] = []
    for start in range(0, len(order), pool):
        rows = order[start : start + pool]
        rows = rows[np.argsort(padded[rows], kind="stable")]
        at = 0
        while at < len(rows):
            window = padded[rows[at : at + max_rows]]
            # Lengths are ascending, so the padded size of the first k rows is k times the k-th length.
            fitting = int((np.arange(1, len(window) + 1) * window <= batch.tokens).sum())
            size = max(1, fitting)
            batches.append(rows[at : at + size])
            at += size
    return [batches[i] for i in random.permutation(len(batches))]


def total_steps(lengths: np.ndarray, batch: Batch, *, seed: int, epochs: float, most: int | None, least: int) -> int:
    """Number of optimizer steps for `epochs` passes over the data, but at least `least` and at most `most`."""
    per_epoch = len(epoch_batches(lengths, batch, seed=seed, epoch=0))
    steps = max(least, math.ceil(epochs * per_epoch))
    return max(1, steps if most is None else min(most, steps))


def steps(
    lengths: np.ndarray, batch: Batch, *, seed: int, total: int, start: int = 0
) -> Iterator[tuple[int, int, np.ndarray]]:
    """(step, epoch, row numbers) for the steps from `start` up to `total`, over as many epochs as needed."""
    step, epoch = 0, 0
    while step < total:
        batches = epoch_batches(lengths, batch, seed=seed, epoch=epoch)
        for index, rows in enumerate(batches):
            if step + index >= total:
                return
            if step + index >= start:
                yield step + index, epoch, rows
        step += len(batches)
        epoch += 1


def share(rows: np.ndarray, *, rank: int, world: int, parts: int) -> list[np.ndarray]:
    """This process's rows of a step, split into at most `parts` non-empty parts for gradient accumulation."""
    return [part for part in np.array_split(rows[rank::world], parts) if len(part)]
