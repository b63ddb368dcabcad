"""A process that trains by itself, while the others of its group train other models."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any, cast

import torch
from accelerate import Accelerator
from torch import Tensor, nn


class Alone:
    """The device and the arithmetic of an accelerator, for a single process: nothing is exchanged with others."""

    num_processes, process_index, is_main_process = 1, 0, True

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self.device: torch.device = accelerator.device
        self.mixed_precision: str = accelerator.mixed_precision
        self.ddp_handler: Any = None

    def prepare_model(self, model: nn.Module) -> nn.Module:
        """The model on the device, under autocast, without data parallelism."""
        return cast(nn.Module, self._accelerator.prepare_model(model, evaluation_mode=True))

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients of a loss []."""
        loss.backward()

    def no_sync(self, model: nn.Module) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def reduce(self, tensor: Tensor, reduction: str) -> Tensor:
        """`tensor`, of any shape, unchanged: a single process has nothing to sum."""
        return tensor

    def wait_for_everyone(self) -> None:
        pass

    def free_memory(self) -> None:
        self._accelerator.free_memory()


def alone(accelerator: Accelerator) -> Accelerator:
    """An accelerator for a process that works by itself. It has only the methods that `distill.training` calls."""
    return cast(Accelerator, Alone(accelerator))
