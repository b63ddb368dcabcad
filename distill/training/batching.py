"""Assigns rows to optimizer steps: a pure function of (seed, epoch), so that processes agree and training can resume.

Rows of similar length are batched together to reduce padding; a batch has as many rows as its token budget allows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from distill.config import Batch
from distill.errors import UserError

POOL = 50
"""Number of batches whose rows are sorted by length together: more means less padding, fewer means more randomness."""
ROUND = 8
"""Padded lengths are multiples of this."""
GPU_TOKENS = 8192
"""Tokens below which a GPU computes a training step in less time than Python takes to launch it (benchmarks/gpu.py, on
an H100). Half of a shorter step takes as long as all of it."""


def epoch_batches(
    lengths: np.ndarray, batch: Batch, *, seed: int, epoch: int, groups: np.ndarray | None = None
) -> list[np.ndarray]:
    """Row numbers of each batch of one epoch; every row is in exactly one batch.

    Rows x longest length (rounded up to a multiple of 8) is at most `batch.tokens`, unless a single row is longer. Rows
    with the same number in `groups` [rows] are neighbours in the same batch. If they exceed a batch, they are in as few
    parts as possible, of random rows.

    Raises:
        UserError: if there are no rows.
    """
    if len(lengths) == 0:
        raise UserError("data: got no rows to train on; must hold at least one; choose other data")
    random = np.random.default_rng([seed, epoch])
    padded = -(-np.asarray(lengths, dtype=np.int64) // ROUND) * ROUND
    order = random.permutation(len(padded))
    max_rows = min(batch.examples or len(order), max(1, batch.tokens // ROUND))
    typical = max(1, min(max_rows, batch.tokens // max(1, int(padded.mean()))))
    sizes = np.ones(len(order), np.int64)
    if groups is not None:
        order, sizes = _parts(order, padded, groups, batch.tokens, max_rows)
    first = np.cumsum(sizes) - sizes
    longest = np.maximum.reduceat(padded[order], first)
    parts = np.arange(len(sizes)) if groups is None else random.permutation(len(sizes))
    pool = max(1, POOL * typical * len(sizes) // len(order))
    batches: list[np.ndarray] = []
    for start in range(0, len(parts), pool):
        pooled = parts[start : start + pool]
        pooled = pooled[np.argsort(longest[pooled], kind="stable")]
        at = 0
        while at < len(pooled):
            window = pooled[at : at + max_rows]
            # Lengths are ascending, so the padded size of the first k parts is their rows times the k-th length.
            rows = np.cumsum(sizes[window])
            fitting = int(((rows * longest[window] <= batch.tokens) & (rows <= max_rows)).sum())
            taken = window[: max(1, fitting)]
            batches.append(order[_places(first[taken], sizes[taken])])
            at += len(taken)
    if groups is not None:  # parts of the same group may have come into the same batch
        batches = [rows[np.argsort(groups[rows], kind="stable")] for rows in batches]
    return [batches[i] for i in random.permutation(len(batches))]


def _parts(
    order: np.ndarray, padded: np.ndarray, groups: np.ndarray, tokens: int, max_rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """`order` sorted by group, and the sizes of consecutive parts of it: whole groups, or equal parts of groups that
    have more than `tokens` or `max_rows`."""
    _, number = np.unique(groups[order], return_inverse=True)
    by_group = np.argsort(number, kind="stable")
    order, number = order[by_group], number[by_group]
    sizes = np.bincount(number)
    first = np.cumsum(sizes) - sizes
    fitting = np.clip(tokens // np.maximum.reduceat(padded[order], first), 1, max_rows)
    parts = -(-sizes // fitting)
    place = np.arange(len(order)) - first[number]
    part = (np.cumsum(parts) - parts)[number] + place * parts[number] // sizes[number]
    return order, np.bincount(part)


def _places(first: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """For each of `first`, as many consecutive numbers from it on as its size; all of them one after the other."""
    ends = np.cumsum(sizes)
    places: np.ndarray = np.arange(ends[-1]) + np.repeat(first - (ends - sizes), sizes)
    return places


def padded(length: int) -> int:
    """The length to which texts are padded, the longest of which has `length` tokens."""
    return -(-length // ROUND) * ROUND


def steps(
    lengths: np.ndarray, batch: Batch, *, seed: int, total: int, start: int = 0, groups: np.ndarray | None = None
) -> Iterator[tuple[int, int, np.ndarray]]:
    """(step, epoch, row numbers of the step) for the steps from `start` up to `total`, over as many epochs as needed.

    lengths, groups: [rows], as in `epoch_batches`.
    """
    step, epoch = 0, 0
    while step < total:
        batches = epoch_batches(lengths, batch, seed=seed, epoch=epoch, groups=groups)
        for index, rows in enumerate(batches):
            if step + index >= total:
                return
            if step + index >= start:
                yield step + index, epoch, rows
        step += len(batches)
        epoch += 1


def share(
    rows: np.ndarray,
    lengths: np.ndarray,
    *,
    rank: int,
    world: int,
    device_tokens: int | None,
    groups: np.ndarray | None = None,
) -> list[np.ndarray]:
    """This process's rows of a step, in the fewest parts of similar size. Empty for a process without rows.

    A part has at most `device_tokens`, padding included, or a single row. All rows are in one part if that is None.

    Neighbours with the same number in `groups` [all rows] stay together, so that the numbers of processes and of parts
    do not change which rows are compared. Processes and parts may then have different numbers of rows, and the parts
    more tokens.
    """
    whole = rows[rank::world]
    if groups is not None:
        split = np.split(rows, np.flatnonzero(np.diff(groups[rows])) + 1)[rank::world]
        whole = np.concatenate([*split, rows[:0]])
    if not len(whole):
        return []
    longest = padded(int(lengths[whole].max()))
    parts = 1 if device_tokens is None else -(-len(whole) // max(1, device_tokens // longest))
    if groups is None:
        return np.array_split(whole, parts)
    sizes = np.array([len(group) for group in split], np.int64)
    middle = np.cumsum(sizes) - sizes / 2
    part = (middle * parts // sizes.sum()).astype(np.int64)
    return [np.concatenate([split[n] for n in np.flatnonzero(part == p)]) for p in np.unique(part)]
