"""Divides work that nobody must wait for between processes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

Job = TypeVar("Job", bound=Hashable)


def divided(cost: Mapping[Job, float], processes: int) -> list[list[Job]]:
    """The jobs of each process: the largest first, each to the process with the least.

    Graham 1969, SIAM Journal on Applied Mathematics 17.
    """
    shares: list[list[Job]] = [[] for _ in range(processes)]
    loads = [0.0] * processes
    for job in sorted(cost, key=lambda each: -cost[each]):
        least = loads.index(min(loads))
        shares[least].append(job)
        loads[least] += cost[job]
    return shares
