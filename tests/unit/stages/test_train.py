"""Which process trains which tasks."""

from __future__ import annotations

import numpy as np
import pytest

from distill.stages.train import SLOWEST, side_by_side


@pytest.mark.parametrize("seed", range(40))
def test_every_task_has_one_process_and_no_process_takes_much_longer(seed: int) -> None:
    random = np.random.default_rng(seed)
    processes, tasks = int(random.integers(2, 9)), int(random.integers(1, 25))
    cost = {f"task{number}": float(random.uniform(1, 100)) for number in range(tasks)}
    shares = side_by_side(cost, processes)
    even = sum(cost.values()) / processes
    if shares is None:
        # A process gets its last task when it has the least, which is at most an even share.
        assert even + max(cost.values()) > SLOWEST * even
        return
    assert sorted(task for share in shares for task in share) == sorted(cost)
    assert len(shares) == processes
    assert max(sum(cost[task] for task in share) for share in shares) <= SLOWEST * even


@pytest.mark.parametrize(
    ("cost", "processes", "shares"),
    [
        ({"a": 2.0, "b": 5.0, "c": 4.0}, 2, [["b"], ["c", "a"]]),
        ({"a": 1.0, "b": 1.0, "c": 1.0}, 2, [["a", "c"], ["b"]]),
        ({"mnli": 40.0, "rte": 1.0, "mrpc": 1.0}, 2, None),  # both processes are needed for the largest
        ({"a": 1.0}, 2, None),
        ({"a": 1.0, "b": 1.0}, 4, None),
        ({"a": 1.0, "b": 1.0}, 1, None),
        ({}, 2, None),
    ],
)
def test_tasks_side_by_side(cost: dict[str, float], processes: int, shares: list[list[str]] | None) -> None:
    assert side_by_side(cost, processes) == shares
