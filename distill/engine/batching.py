"""Which rows make up which optimizer step: a pure function of (seed, epoch), the same on every process and on resume.

Rows of like length are put together, so that little is padded, and a batch holds as many as its token budget allows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from distill.config import Batch
from distill.errors import UserError

POOL = 50
"""Batches sorted by length together: larger pads less, smaller is more random."""
ROUND = 8
"""Lengths are padded to a multiple of this."""


def epoch_batches(lengths: np.ndarray, batch: Batch, *, seed: int, epoch: int) -> list[np.ndarray]:
    """Rows of each batch of one epoch; every row is in exactly one.

    A batch costs rows x longest length (rounded up to a multiple of 8) and stays within `batch.tokens`, unless a single
    row is longer than that.
    """
    if len(lengths) == 0:
        raise UserError("data: got no rows to train on; must hold at least one; choose other data")
    random = np.random.default_rng([seed, epoch])
    padded = -(-np.asarray(lengths, dtype=np.int64) // ROUND) * ROUND
    order = random.permutation(len(padded))
    most = min(batch.examples or len(order), max(1, batch.tokens // ROUND))
    typical = max(1, min(most, batch.tokens // max(1, int(padded.mean()))))
    pool = POOL * typical
    batches: list[np.ndarray] = []
    for start in range(0, len(order), pool):
        rows = order[start : start + pool]
        rows = rows[np.argsort(padded[rows], kind="stable")]
        at = 0
        while at < len(rows):
            window = padded[rows[at : at + most]]
            # Lengths ascend, so the cost of the first k rows is k times the k-th length.
            fits = int((np.arange(1, len(window) + 1) * window <= batch.tokens).sum())
            take = max(1, fits)
            batches.append(rows[at : at + take])
            at += take
    return [batches[i] for i in random.permutation(len(batches))]


def total_steps(lengths: np.ndarray, batch: Batch, *, seed: int, epochs: float, most: int | None, least: int) -> int:
    """Optimizer steps of a stage: `epochs` passes, at least `least`, at most `most`."""
    per_epoch = len(epoch_batches(lengths, batch, seed=seed, epoch=0))
    steps = max(least, math.ceil(epochs * per_epoch))
    return max(1, steps if most is None else min(most, steps))


def steps(
    lengths: np.ndarray, batch: Batch, *, seed: int, total: int, start: int = 0
) -> Iterator[tuple[int, int, np.ndarray]]:
    """(step, epoch, rows) from `start` to `total`, over as many epochs as it takes."""
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
    """This process's rows of a step, in at most `parts` parts; empty parts are left out."""
    return [part for part in np.array_split(rows[rank::world], parts) if len(part)]
