"""Steps whose gradients are not finite: they are skipped, and several in a row end the training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from distill.errors import UserError
from distill.runtime.storage import atomic

MOST = 3
"""Number of skipped steps in a row after which training stops."""

ADVICE = "must be finite; lower optimizer.lr or set precision=fp32"


class NotFinite(UserError):
    """A loss, a weight or gradients are not finite: the training diverged."""


class Guard:
    """The steps of an optimizer, except steps whose gradients are not finite: a single one would make every weight so.

    With a fused optimizer on a GPU, the GPU decides, and nothing waits for it.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
        self._optimizer, self._host = optimizer, device.type == "cpu"
        self._on_device = not self._host and bool(optimizer.defaults.get("fused"))
        self._in_a_row = torch.zeros((), device=device)

    def step(self, norms: Sequence[Tensor]) -> Tensor:
        """Step if the gradient norms, each [], are finite. Returns whether they are not, a flag [] on the device."""
        skipped = ~torch.stack([norm.detach() for norm in norms]).isfinite().all()
        self._in_a_row = (self._in_a_row + 1) * skipped
        if self._on_device:
            self._optimizer.found_inf = skipped.float()  # type: ignore[attr-defined]
        if self._on_device or not skipped:
            self._optimizer.step()
        return skipped

    def check(self, most: int, step: int, parts: Sequence[dict[str, np.ndarray]], file: Path, *, wait: bool) -> None:
        """Write the batches of a step and end the training, after `most` skipped steps in a row. Arrays may have any
        shape.

        Args:
            wait: whether to wait for a GPU to find out.

        Raises:
            NotFinite: after `most` skipped steps in a row.
        """
        if (self._host or wait) and self._in_a_row >= most:
            arrays = {f"{number}.{name}": array for number, part in enumerate(parts) for name, array in part.items()}
            atomic.write_arrays(file, arrays)
            raise NotFinite(
                f"gradients: got numbers that are not finite in {most} steps in a row, until step {step}; {ADVICE}. "
                f"The batch of the last one is in {file}"
            )
