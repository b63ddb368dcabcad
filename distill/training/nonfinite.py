"""Steps whose gradients are not finite: they are skipped, and several in a row end the training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from distill.errors import UserError
from distill.runtime.storage import atomic

MOST = 3
"""Number of skipped steps in a row after which training stops, at the lowest scale of the losses."""
HALVINGS = 12
"""Training in fp16 begins with losses x 2^12. Each skipped step halves this; 2,000 others in a row double it. torch
begins with 2^16, of which short trainings would skip too many steps."""

ADVICE = "must be finite; lower optimizer.lr or set precision=fp32"


class NotFinite(UserError):
    """A loss, a weight or gradients are not finite: the training diverged."""


def scaler_of(device: torch.device, *, fp16: bool) -> torch.amp.GradScaler:
    """Scales the losses of a training in fp16, and changes nothing in another one."""
    return torch.amp.GradScaler(device.type, init_scale=2.0**HALVINGS, enabled=fp16)


def restore(scaler: torch.amp.GradScaler, state: dict[str, Any]) -> None:
    """Restore the state of a scaler: empty from a training in another precision, which leaves the scale as it is."""
    if state and scaler.is_enabled():
        scaler.load_state_dict(state)


class Guard:
    """The steps of an optimizer, except steps whose gradients are not finite: a single one would make every weight so.

    With a fused optimizer on a GPU, the GPU decides, and nothing waits for it. The scale of `scaler` follows.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, device: torch.device, scaler: torch.amp.GradScaler | None = None
    ) -> None:
        self._optimizer, self._host = optimizer, device.type == "cpu"
        self._scaler = scaler or scaler_of(device, fp16=False)
        self._on_device = not self._host and bool(optimizer.defaults.get("fused"))
        self._in_a_row = torch.zeros((), device=device)

    def unscale(self) -> None:
        """Divide the gradients by the scale of the losses, before they are clipped."""
        self._scaler.unscale_(self._optimizer)

    def step(self, norms: Sequence[Tensor]) -> Tensor:
        """Step if the gradient norms, each [], are finite. Returns whether they are not, a flag [] on the device."""
        skipped = ~torch.stack([norm.detach() for norm in norms]).isfinite().all()
        self._in_a_row = (self._in_a_row + 1) * skipped
        if self._on_device:
            self._optimizer.found_inf = skipped.float()  # type: ignore[attr-defined]
        if self._on_device or not skipped:
            self._optimizer.step()
        self._scaler.update()
        return skipped

    def check(self, total: int, step: int, parts: Sequence[dict[str, np.ndarray]], file: Path, *, wait: bool) -> None:
        """Write the batches of a step and end the training, after too many skipped steps in a row. Arrays may have any
        shape.

        Args:
            total: number of steps of the training.
            wait: whether to wait for a GPU to find out.

        Raises:
            NotFinite: after `MOST` skipped steps in a row, or `total` if that is fewer. In fp16, after `HALVINGS` more,
                or when the scale of the losses falls below 1, where small gradients underflow to 0.
        """
        told = self._host or wait
        if told and self._scaler.is_enabled() and self._scaler.get_scale() < 1 and not self._in_a_row:
            raise NotFinite(
                f"gradients: got numbers that are not finite in many steps until step {step}, so that losses are no "
                f"longer scaled up and small gradients are 0 in float16; {ADVICE}"
            )
        most = min(MOST + HALVINGS * self._scaler.is_enabled(), total)
        if told and self._in_a_row >= most:
            arrays = {f"{number}.{name}": array for number, part in enumerate(parts) for name, array in part.items()}
            atomic.write_arrays(file, arrays)
            raise NotFinite(
                f"gradients: got numbers that are not finite in {most} steps in a row, until step {step}; {ADVICE}. "
                f"The batch of the last one is in {file}"
            )
