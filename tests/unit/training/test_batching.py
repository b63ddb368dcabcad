"""The plan of batches: complete, within its budget, and the same after a resume."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np
import pytest

from distill.config import Batch
from distill.data.collate import pairs
from distill.errors import UserError
from distill.training import batching

LENGTHS = np.random.default_rng(5).integers(3, 129, 1500)
BUDGETS = [Batch(tokens=512), Batch(tokens=2048, examples=5), Batch(tokens=40), Batch(tokens=10**6)]


GROUPS = np.random.default_rng(6).integers(0, 200, 1500) ** 2 // 150
"""Group of each row: some groups have one row, one has more than most batches."""


def cost(rows: np.ndarray) -> int:
    return len(rows) * math.ceil(int(LENGTHS[rows].max()) / 8) * 8


@pytest.mark.parametrize("batch", BUDGETS)
@pytest.mark.parametrize("epoch", [0, 3])
def test_every_row_is_in_an_epoch_exactly_once(batch: Batch, epoch: int) -> None:
    batches = batching.epoch_batches(LENGTHS, batch, seed=1, epoch=epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(LENGTHS)))


@pytest.mark.parametrize("batch", BUDGETS)
def test_no_batch_exceeds_its_budget(batch: Batch) -> None:
    batches = batching.epoch_batches(LENGTHS, batch, seed=1, epoch=0)
    assert all(len(rows) == 1 or cost(rows) <= batch.tokens for rows in batches)
    assert max(len(rows) for rows in batches) <= (batch.examples or len(LENGTHS))


def test_little_is_padded_and_batches_are_full() -> None:
    batches = batching.epoch_batches(LENGTHS, Batch(tokens=512), seed=1, epoch=0)
    computed = sum(cost(rows) for rows in batches)
    assert computed < 1.15 * LENGTHS.sum()
    assert computed > 0.8 * 512 * len(batches)


def test_batches_do_not_come_in_the_order_of_their_lengths() -> None:
    batches = batching.epoch_batches(LENGTHS, Batch(tokens=512), seed=1, epoch=0)
    longest = np.array([LENGTHS[rows].max() for rows in batches])
    assert 0.35 < (np.diff(longest) >= 0).mean() < 0.7  # sorted, nearly all would rise


def test_the_plan_depends_on_seed_and_epoch_alone() -> None:
    def plan(seed: int, epoch: int) -> list[list[int]]:
        return [rows.tolist() for rows in batching.epoch_batches(LENGTHS, BUDGETS[0], seed=seed, epoch=epoch)]

    first = plan(1, 2)
    np.random.seed(0)  # noqa: NPY002 the global generator must not matter
    assert plan(1, 2) == first
    assert len({str(plan(seed, epoch)) for seed in (1, 2) for epoch in (1, 2)}) == 4


def test_steps_resume_with_the_same_plan() -> None:
    def taken(total: int, start: int = 0) -> list[tuple[int, int, list[int]]]:
        found = batching.steps(LENGTHS, BUDGETS[0], seed=4, total=total, start=start)
        return [(step, epoch, rows.tolist()) for step, epoch, rows in found]

    epochs = [batching.epoch_batches(LENGTHS, BUDGETS[0], seed=4, epoch=epoch) for epoch in range(3)]
    wanted = [(epoch, rows.tolist()) for epoch, batches in enumerate(epochs) for rows in batches]
    total, one = len(wanted) - 7, len(epochs[0])
    whole = taken(total)
    assert whole == [(step, epoch, rows) for step, (epoch, rows) in enumerate(wanted[:total])]
    for start in (1, one - 1, one, one + 1, total - 1, total):
        assert taken(total, start) == whole[start:]


@pytest.mark.parametrize("batch", BUDGETS)
def test_groups_stay_together_within_the_budget(batch: Batch) -> None:
    batches = batching.epoch_batches(LENGTHS, batch, seed=1, epoch=0, groups=GROUPS)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(LENGTHS)))
    assert all(len(rows) == 1 or cost(rows) <= batch.tokens for rows in batches)
    assert max(len(rows) for rows in batches) <= (batch.examples or len(LENGTHS))
    batch_of = np.empty(len(LENGTHS), int)
    for number, taken in enumerate(batches):
        batch_of[taken] = number
    for group in np.unique(GROUPS):
        rows = np.flatnonzero(GROUPS == group)
        most = max(1, min(batch.tokens // (math.ceil(LENGTHS[rows].max() / 8) * 8), batch.examples or len(rows)))
        assert len(np.unique(batch_of[rows])) <= math.ceil(len(rows) / most)


def test_batches_of_groups_are_full_and_random() -> None:
    def plan(seed: int, epoch: int) -> list[list[int]]:
        batches = batching.epoch_batches(LENGTHS, Batch(tokens=4096), seed=seed, epoch=epoch, groups=GROUPS)
        return [rows.tolist() for rows in batches]

    first = plan(1, 0)
    assert sum(cost(np.array(rows)) for rows in first) > 0.75 * 4096 * len(first)
    assert plan(1, 0) == first
    assert len({str(plan(seed, epoch)) for seed in (1, 2) for epoch in (1, 2)}) == 4
    large = {*np.flatnonzero(GROUPS == 0).tolist()}
    assert len(large) > 32
    assert {frozenset(large & {*rows}) for rows in plan(1, 1)} != {frozenset(large & {*rows}) for rows in first}


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("at_once", [None, 2048, 256])
def test_the_same_pairs_are_compared_by_any_number_of_processes_and_parts(world: int, at_once: int | None) -> None:
    for rows in batching.epoch_batches(LENGTHS, Batch(tokens=4096), seed=1, epoch=0, groups=GROUPS):
        split = partial(batching.share, rows, LENGTHS, world=world, device_tokens=at_once, groups=GROUPS)
        shares = [split(rank=rank) for rank in range(world)]
        own = [part for share in shares for part in share]
        assert sorted(np.concatenate(own).tolist()) == sorted(rows.tolist())
        found = {frozenset(part[pair].tolist()) for part in own for pair in pairs(GROUPS[part])}
        every = itertools.combinations(rows.tolist(), 2)
        assert found == {frozenset(pair) for pair in every if GROUPS[pair[0]] == GROUPS[pair[1]]}


def test_parts_of_groups_have_similar_sizes() -> None:
    groups = np.repeat(np.arange(40), 3)
    lengths = np.full(120, 8)
    shares = batching.share(np.arange(120), lengths, rank=0, world=1, device_tokens=8 * 30, groups=groups)
    assert [len(part) for part in shares] == [30, 30, 30, 30]


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("at_once", [None, 1, 256])
@pytest.mark.parametrize("count", [1, 2, 5, 24])
def test_processes_and_parts_share_the_rows(world: int, at_once: int | None, count: int) -> None:
    rows = np.random.default_rng(0).permutation(100)[:count]
    split = partial(batching.share, rows, LENGTHS, world=world, device_tokens=at_once)
    shares = [split(rank=rank) for rank in range(world)]
    assert sorted(row for share in shares for part in share for row in part) == sorted(rows)
    assert all(len(part) for share in shares for part in share)
    padded = -(-LENGTHS // batching.ROUND) * batching.ROUND
    for share in shares:
        assert len(share) <= 1 or at_once is not None
        assert all(len(part) == 1 or len(part) * padded[part].max() <= at_once for part in share if at_once)
    sizes = [sum(map(len, share)) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_one_process_and_one_part_have_all_rows() -> None:
    (part,) = batching.share(np.array([7, 3, 5]), LENGTHS, rank=0, world=1, device_tokens=None)
    assert part.tolist() == [7, 3, 5]


def test_no_rows_are_refused() -> None:
    none = np.zeros(0, dtype=np.int64)
    with pytest.raises(UserError, match="data: got no rows to train on"):
        batching.epoch_batches(none, Batch(), seed=0, epoch=0)
