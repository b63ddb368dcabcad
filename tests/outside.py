"""A backend, a scheme and a loss as a package beside distill has them: one file.

Weights are 4 bits in a file of numpy's. The new process that verifies an export imports this file too, and must load
nothing of distill: what needs distill imports it in its function.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

INPUTS = ("input_ids", "attention_mask")
LEVELS = 7
"""Largest value of a weight."""


def quantize(source: Path, out: Path, keep: Collection[str], rows: Sequence[Any]) -> None:
    """Write the linear modules of a classifier in 4 bits, with one scale for each matrix, and all else in float32."""
    from torch.nn import Linear
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(source)
    linear = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, Linear)}
    arrays = {}
    for name, tensor in model.state_dict().items():
        value = arrays[name] = tensor.numpy()
        if name in linear and not name.startswith(tuple(f"{module}." for module in keep)):
            arrays[f"{name}:scale"] = scale = np.abs(value).max() / LEVELS
            arrays[name] = (value / scale).round().astype(np.int8)
    out.mkdir(parents=True)
    model.config.save_pretrained(out)
    np.savez(out / "weights.npz", **arrays)


def reload(path: str) -> Callable[[dict[str, Any]], Any]:
    """Batch [B, L] -> logits [B, C] of what `quantize` wrote."""
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    stored = dict(np.load(Path(path) / "weights.npz"))
    for name in [name for name in stored if name.endswith(":scale")]:
        stored[name.removesuffix(":scale")] = stored[name.removesuffix(":scale")] * stored.pop(name)
    model = AutoModelForSequenceClassification.from_config(AutoConfig.from_pretrained(path)).eval()
    model.load_state_dict({name: torch.from_numpy(value) for name, value in stored.items()})

    def run(batch: dict[str, Any]) -> Any:
        with torch.inference_mode():
            known = {name: torch.from_numpy(value) for name, value in batch.items() if name in INPUTS}
            return model(**known).logits.numpy()

    return run


def load(name: str, path: Path | str, *, scheme: str, device: str, threads: int) -> Any:
    """The same as a `Runner`."""
    from distill.inference.runners import Runner

    return Runner(name, "outside", scheme, reload(str(path)))


def absolute(student: Any, teacher: Any, *, temperature: float = 1.0) -> Any:
    """[rows, C] -> [rows]: mean absolute difference of the logits divided by the temperature."""
    return (student - teacher).abs().mean(-1) / temperature
