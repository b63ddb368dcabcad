"""Which process trains which tasks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from distill import config
from distill.stages import train
from distill.stages.train import SLOWEST, divided, together


@pytest.mark.parametrize("seed", range(40))
def test_every_task_has_one_process_and_no_process_takes_much_longer(seed: int) -> None:
    random = np.random.default_rng(seed)
    processes, tasks = int(random.integers(2, 9)), int(random.integers(1, 25))
    cost = {f"task{number}": float(random.uniform(1, 100)) for number in range(tasks)}
    shares, even = divided(cost, processes), sum(cost.values()) / processes
    assert sorted(task for share in shares for task in share) == sorted(cost)
    assert len(shares) == processes
    # A process gets its last task when it has the least, which is at most an even share.
    longest = max(sum(cost[task] for task in share) for share in shares)
    assert longest <= even + max(cost.values())
    assert together(cost, processes) == (longest > SLOWEST * even)


@pytest.mark.parametrize(
    ("cost", "processes", "shares"),
    [
        ({"a": 2.0, "b": 5.0, "c": 4.0}, 2, [["b"], ["c", "a"]]),
        ({"a": 1.0, "b": 1.0, "c": 1.0}, 2, [["a", "c"], ["b"]]),
        ({"mnli": 40.0, "rte": 1.0, "mrpc": 1.0}, 2, None),  # both processes are needed for the largest
        ({"a": 1.0}, 2, None),
        ({"a": 1.0, "b": 1.0}, 4, None),
        ({"a": 1.0, "b": 1.0}, 1, None),
    ],
)
def test_tasks_side_by_side(cost: dict[str, float], processes: int, shares: list[list[str]] | None) -> None:
    assert (None if together(cost, processes) else divided(cost, processes)) == shares


def test_a_training_goes_on_as_it_began_after_others_have_finished() -> None:
    """By one process alone if it began so: together, the processes add in another order."""

    class Machine:
        accelerator = SimpleNamespace(num_processes=2, process_index=0)
        wait = log = staticmethod(lambda *_: None)

    class Alone:
        machine, tasks = Machine, {name: SimpleNamespace(train=range(40)) for name in ("a", "b")}
        alone = staticmethod(lambda: "alone")

    settings = config.Train(epochs=1)
    assert train._divided(cast(Any, Alone), settings, ["a", "b"]) == [("alone", "a")]
    assert train._divided(cast(Any, Alone), settings, ["b"]) == [("alone", "b")]
    Alone.tasks = {"b": Alone.tasks["b"]}
    assert train._divided(cast(Any, Alone), settings, ["b"]) == [(Alone, "b")]
