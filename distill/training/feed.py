"""The batches of each step, collated one step ahead; in smaller parts where a device has too little memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from accelerate import Accelerator

from distill.config import Batch
from distill.errors import ConfigError, UserError
from distill.training import batching

Arrays = dict[str, np.ndarray]
Collate = Callable[[np.ndarray, int], Arrays]
"""(row numbers, epoch) -> arrays of a batch, as the objective takes them."""
ON_A_CPU = "can't allocate memory"
"""Part of torch's message where a CPU has too little memory."""


@dataclass(frozen=True)
class Fed:
    """The work of a process in a step."""

    step: int
    epoch: int
    rows: np.ndarray
    """Numbers of the step's rows, over all processes."""
    parts: list[Arrays]
    """The batches of this process, whose gradients are accumulated."""
    scale: float
    """Factor of the loss. It is 0 for a process without rows of its own, which computes the first row only to take part
    in the exchange of gradients, else 1."""
    device_tokens: int | None
    """Maximum tokens of a part."""


class Feed:
    """Collates the batches of steps.

    Args:
        global_batch: whether `collate` gets the rows of all processes, and encodes the rows of its own process.
        device_tokens: maximum tokens of a part, found before an interruption; None for `batch.device_tokens`.
        whole: whether a term compares the rows of a step with each other, so that a step has one part.
    """

    def __init__(
        self,
        collate: Collate,
        lengths: np.ndarray,
        batch: Batch,
        groups: np.ndarray | None,
        accelerator: Accelerator,
        global_batch: bool,
        device_tokens: int | None = None,
        whole: bool = False,
    ) -> None:
        if whole and batch.device_tokens is not None:
            raise ConfigError(
                f"batch.device_tokens: got {batch.device_tokens}; must be left out with a loss that compares all rows "
                "of a step with each other; leave it out"
            )
        self._collate, self._lengths, self._groups = collate, lengths, groups
        self._rank: int = 0 if global_batch else accelerator.process_index
        self._world: int = 1 if global_batch else accelerator.num_processes
        self._alone, self._whole = accelerator.num_processes == 1, whole
        self.device_tokens = device_tokens or batch.device_tokens

    def ahead(self, plan: Iterator[tuple[int, int, np.ndarray]]) -> Iterator[Fed]:
        """The collated steps of a plan of (step, epoch, row numbers [rows]). A thread collates, so that a GPU does not
        wait for numpy."""
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
        """The step in parts of half as many tokens. All later steps have such parts too.

        Raises:
            UserError: if no part can be smaller, because it is one row or one group of rows; with several processes
                always, because all must have equally many parts; and if a step has to be one part.
        """
        before = self._largest(fed.rows)
        if self._alone and not self._whole:
            self.device_tokens = max(batching.ROUND, before // 2)
            if self._largest(fed.rows) < before:
                return self._fed(fed.step, fed.epoch, fed.rows)
        advice = "lower tasks.max_length or corpus.max_length" if self._alone else "lower its batch.device_tokens"
        part = "a part of a step"
        if self._whole:
            part, advice = "a whole step, whose rows a term compares with each other", "lower its batch.tokens"
        raise UserError(
            f"memory: got too little for {before} tokens at once, in texts of up to "
            f"{int(self._lengths[fed.rows].max())}; must be enough for {part}; {advice}, or use a smaller model"
        )

    def _current(self, fed: Fed) -> Fed:
        """The step, collated again if that was done before parts became smaller."""
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

    def _largest(self, rows: np.ndarray) -> int:
        """Tokens of the largest part of a step, padding included; 0 for a process without rows."""
        return max(
            (len(part) * batching.padded(int(self._lengths[part].max())) for part in self._share(rows)), default=0
        )


def out_of_memory(error: RuntimeError) -> bool:
    """Whether a device, which may be the host, had too little memory."""
    return isinstance(error, torch.OutOfMemoryError) or ON_A_CPU in str(error)
