"""The batches of each step, collated one step ahead; in smaller parts where a device has too little memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from accelerate import Accelerator

from distill.config import Batch
from distill.engine import batching
from distill.errors import UserError

Arrays = dict[str, np.ndarray]
Collate = Callable[[np.ndarray, int], Arrays]
"""(row numbers, epoch) -> arrays of a batch, as the objective takes them."""
ON_A_CPU = "can't allocate memory"
"""Part of torch's message where a CPU has too little memory."""


@dataclass(frozen=True)
class Fed:
    """What a process computes in a step."""

    step: int
    epoch: int
    rows: np.ndarray
    """Numbers of the step's rows, over all processes."""
    parts: list[Arrays]
    """The batches of this process, whose gradients are accumulated."""
    scale: float
    """0 for a process without rows of its own, which computes the first row because it must take part; else 1."""
    device_tokens: int | None
    """Maximum tokens of a part."""


class Feed:
    """Collates the batches of steps.

    Args:
        together: whether `collate` gets the rows of all processes, and encodes those of its own process.
    """

    def __init__(
        self,
        collate: Collate,
        lengths: np.ndarray,
        batch: Batch,
        groups: np.ndarray | None,
        accelerator: Accelerator,
        together: bool,
    ) -> None:
        self._collate, self._lengths, self._groups = collate, lengths, groups
        self._rank: int = 0 if together else accelerator.process_index
        self._world: int = 1 if together else accelerator.num_processes
        self._alone = accelerator.num_processes == 1
        self.device_tokens = batch.device_tokens

    def ahead(self, plan: Iterator[tuple[int, int, np.ndarray]]) -> Iterator[Fed]:
        """The steps of a plan, (step, epoch, rows) each, collated in a thread so that a GPU does not wait for numpy."""
        pending: Future[Fed] | None = None
        with ThreadPoolExecutor(1) as pool:
            for planned in plan:
                following = pool.submit(self._fed, *planned)
                if pending is not None:
                    yield self._current(pending.result())
                pending = following
            if pending is not None:
                yield self._current(pending.result())

    def smaller(self, fed: Fed) -> Fed:
        """The step in parts of half as many tokens, as all later ones will be.

        Raises:
            UserError: if a part has a single row, and with several processes, which must all have equally many parts.
        """
        rows = self._share(fed.rows)
        most = max(map(len, rows), default=1)
        if most == 1 or not self._alone:
            advice = (
                "lower its batch.device_tokens" if not self._alone else "lower tasks.max_length or corpus.max_length"
            )
            raise UserError(
                f"memory: got too little for {most} texts of {int(self._lengths[fed.rows].max())} tokens at once; "
                f"must be enough for a part of a step; {advice}, or use a smaller model"
            )
        self.device_tokens = max(batching.ROUND, max(len(part) * self._padded(part) for part in rows) // 2)
        return self._fed(fed.step, fed.epoch, fed.rows)

    def _current(self, fed: Fed) -> Fed:
        """The step, collated anew if it was before parts became smaller."""
        return fed if fed.device_tokens == self.device_tokens else self._fed(fed.step, fed.epoch, fed.rows)

    def _fed(self, step: int, epoch: int, rows: np.ndarray) -> Fed:
        device_tokens = self.device_tokens
        own = self._share(rows)
        parts = [self._collate(part, epoch) for part in own or [rows[:1]]]
        return Fed(step, epoch, rows, parts, float(bool(own)), device_tokens)

    def _share(self, rows: np.ndarray) -> list[np.ndarray]:
        return batching.share(
            rows,
            self._lengths,
            rank=self._rank,
            world=self._world,
            device_tokens=self.device_tokens,
            groups=self._groups,
        )

    def _padded(self, rows: np.ndarray) -> int:
        return -(-int(self._lengths[rows].max()) // batching.ROUND) * batching.ROUND


def out_of_memory(error: RuntimeError) -> bool:
    """Whether a device, or the host as one, had too little memory."""
    return isinstance(error, torch.OutOfMemoryError) or ON_A_CPU in str(error)
