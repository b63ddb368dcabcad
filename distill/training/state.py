"""Checkpoints of a training stage from which it resumes exactly: safetensors and JSON, no pickle.

All random numbers are seeded by (seed, epoch, sample) or (seed, step, rank), so that weights, optimizer state and step
are sufficient.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from distill.runtime.storage import atomic

KEEP = 2
"""Number of states that are kept. If the newest is damaged, the one before it is used."""
WEIGHTS, OPTIMIZER, STATE = "weights.safetensors", "optimizer.safetensors", "state.json"


def save(folder: Path, step: int, module: nn.Module, optimizer: torch.optim.Optimizer, extra: dict[str, Any]) -> None:
    """Write `folder/<step>` atomically, then remove all but the newest `KEEP`. `extra` is stored in its JSON file."""
    with atomic.writing(folder / str(step)) as temporary:
        weights = {name: value.detach().contiguous() for name, value in module.named_parameters()}
        save_file(weights, temporary / WEIGHTS)
        state = optimizer.state_dict()["state"]
        tensors = {
            f"{i}.{key}": torch.as_tensor(value).contiguous()
            for i, values in state.items()
            for key, value in values.items()
        }
        save_file(tensors, temporary / OPTIMIZER)
        atomic.write_json(temporary / STATE, {"step": step, **extra})
    for other in _complete(folder)[:-KEEP]:
        atomic.discard(folder / str(other))


def _complete(folder: Path) -> list[int]:
    return sorted(int(file.parent.name) for file in folder.glob(f"*/{STATE}") if file.parent.name.isdigit())


def load(folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any] | None:
    """Restore the newest state into `module` and `optimizer`, in place. Damaged ones were removed at the run's start.

    Returns the content of its JSON file, `step` and the `extra` of `save`, or None without a state.
    """
    steps = _complete(folder)
    if not steps:
        return None
    newest = folder / str(steps[-1])
    load_weights(newest / WEIGHTS, module)
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in load_file(newest / OPTIMIZER).items():
        index, _, name = key.partition(".")
        # A copy, because what is loaded stays a part of the file, which is removed while the training goes on.
        state.setdefault(int(index), {})[name] = value.clone()
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    loaded: dict[str, Any] = atomic.read_json(newest / STATE)
    return loaded


def load_weights(file: Path, module: nn.Module) -> None:
    """Restore the weights of `module` from a file, in place."""
    weights = load_file(file)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(weights[name])
