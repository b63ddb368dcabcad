"""Checkpoints of a training stage from which it resumes exactly: safetensors and JSON, no pickle.

All random numbers are seeded by (seed, epoch, sample) or (seed, step, rank), so that weights, optimizer state and step
are sufficient.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from distill import checkpoint

KEEP = 2
"""Number of states that are kept: the one before is used if the newest is damaged."""
WEIGHTS, OPTIMIZER, STATE, HASHES = "weights.safetensors", "optimizer.safetensors", "state.json", "sha256"


def save(folder: Path, step: int, module: nn.Module, optimizer: torch.optim.Optimizer, extra: dict[str, Any]) -> None:
    """Write `folder/<step>` atomically, then remove all but the newest `KEEP`. `extra` is stored in its JSON file."""
    with checkpoint.writing(folder / str(step)) as temporary:
        weights = {name: value.detach().contiguous() for name, value in module.named_parameters()}
        save_file(weights, temporary / WEIGHTS)
        state = optimizer.state_dict()["state"]
        tensors = {
            f"{i}.{key}": torch.as_tensor(value).contiguous()
            for i, values in state.items()
            for key, value in values.items()
        }
        save_file(tensors, temporary / OPTIMIZER)
        content = {"step": step, **extra}
        checkpoint.write_json(temporary / STATE, {**content, HASHES: _hashes(temporary, content)})
    for other in _complete(folder)[:-KEEP]:
        shutil.rmtree(folder / str(other))


def _hashes(folder: Path, content: dict[str, Any]) -> dict[str, str]:
    """File -> hash of the files of a state, whose JSON file has this content."""
    found = {STATE: checkpoint.fingerprint(content)}
    for name in (WEIGHTS, OPTIMIZER):
        with (folder / name).open("rb") as file:
            found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _complete(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return sorted(int(p.name) for p in folder.iterdir() if p.name.isdigit() and (p / STATE).is_file())


def load(
    folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer, log: Callable[[str], None] = lambda text: None
) -> dict[str, Any] | None:
    """Restore the newest state whose files are as they were written into `module` and `optimizer`, in place.

    Returns its JSON file (`step` and what `save` was given as `extra`), or None if there is none.

    Args:
        log: gets a line for each damaged state.
    """
    for step in reversed(_complete(folder)):
        if (loaded := _read(folder / str(step))) is None:
            log(f"the state after step {step} is damaged and not used: its files are not as they were written")
            continue
        _restore(folder / str(step), module, optimizer)
        return loaded
    return None


def _read(folder: Path) -> dict[str, Any] | None:
    """The JSON file of a state; None if a file of it is damaged."""
    try:
        loaded: dict[str, Any] = checkpoint.read_json(folder / STATE)
        written = loaded.pop(HASHES)
        return loaded if _hashes(folder, loaded) == written else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _restore(folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    weights = load_file(folder / WEIGHTS)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(weights[name])
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in load_file(folder / OPTIMIZER).items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
