"""Outputs of all processes for the rows of a step, where losses compare each row with all others."""

from __future__ import annotations

import torch
from torch import Tensor
from torch import distributed as processes


def of_all_processes(outputs: Tensor, own: Tensor, rows: int) -> Tensor:
    """Outputs [`rows`, outputs] of all rows, of which each process computed the rows `own`: its rank, its rank plus the
    number of processes, and so on.

    Each process then computes the loss of all rows, but has gradients of its own rows alone. Data parallelism averages
    the gradients of processes, so they are multiplied by the number of processes here.

    Args:
        outputs: [n, outputs], of the rows `own` first. A process without rows of its own passes others, which are
            ignored.
    """
    world = processes.get_world_size()
    mine = outputs[: len(own)]
    padded = outputs.new_zeros(-(-rows // world), outputs.shape[1])
    padded[: len(own)] = mine.detach()
    gathered = [torch.empty_like(padded) for _ in range(world)]
    processes.all_gather(gathered, padded)
    whole = torch.stack(gathered, dim=1).flatten(0, 1)[:rows]
    if not mine.requires_grad:
        return whole
    mine.register_hook(lambda gradient: gradient * world)
    return whole.index_copy(0, own, mine)
