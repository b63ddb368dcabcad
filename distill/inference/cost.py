"""Costs of a model: parameters, bytes on disk, multiply-accumulates, and the price of its inferences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from distill.models.families import auto_class, encode, end_token, family_of, logits, max_length

LENGTH = 128

DENSE = "*_Dense/*.safetensors"
"""The linear layer of an embedder."""


BYTES = {"F32": 4, "F16": 2, "BF16": 2}
"""Bytes of a number in the formats of safetensors in which float checkpoints are stored."""


def total(cost: Callable[[Path, bool], float], folders: Sequence[Path], one_encoder: bool) -> float:
    """Sum of a cost (folder, only its encoder) over model folders. `one_encoder`: they share one encoder, which is
    counted once."""
    again = (len(folders) - 1) * cost(folders[0], True) if one_encoder else 0
    return sum(cost(folder, False) for folder in folders) - again


def parameters(folder: Path, encoder: bool = False) -> int:
    """Number of parameters in the safetensors files of a model folder; with `encoder`, only of its encoder."""
    return sum(size for size, _ in _tensors(folder, encoder))


def _tensors(folder: Path, encoder: bool) -> Iterator[tuple[int, str]]:
    """Number of parameters and format of each tensor of a folder; with `encoder`, of its encoder alone."""
    from safetensors import safe_open
    from transformers import AutoConfig

    starts: tuple[str, ...] = ("",)
    if encoder:
        record = family_of(AutoConfig.from_pretrained(folder, trust_remote_code=False))
        starts = (f"{record.encoder}.", *filter(None, [record.outer]))  # as a file may name it
    for file in sorted([*folder.glob("*.safetensors"), *folder.glob(DENSE)]):
        with safe_open(file, framework="numpy") as tensors:
            for name in tensors.keys():
                if name.startswith(starts):
                    part = tensors.get_slice(name)
                    yield math.prod(part.get_shape()), part.get_dtype()


def size_mib(path: Path, encoder: bool = False) -> float:
    """Size of the weights on disk (an ONNX file, or the weight files of a folder) in MiB.

    With `encoder`, only the size of the encoder in a folder of float weights.
    """
    if encoder:
        return sum(size * BYTES[dtype] for size, dtype in _tensors(path, True)) / 2**20
    endings = ("*.safetensors", "*.bin", DENSE)
    files = [path] if path.is_file() else sorted(file for ending in endings for file in path.glob(ending))
    return sum(file.stat().st_size for file in files) / 2**20


def size_mib_of(config: Any) -> float:
    """Size of a sequence classifier's float32 weights in MiB, computed from its config."""
    import torch

    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        model = auto_class(config).from_config(config, trust_remote_code=False)
    return sum(parameter.numel() for parameter in model.parameters()) * 4 / 2**20


_counted: dict[tuple[bytes, bool], float] = {}
"""(config.json, whether of the encoder alone) -> what `gmacs` returned: a model has many variants, with one config."""


def gmacs(folder: Path, encoder: bool = False) -> float:
    """Billions of multiply-accumulates for one sequence of 128 tokens (or the model's maximum), counted by torch.

    With `encoder`, of the encoder alone. Runs on meta tensors, without computing; models whose code depends on values
    (DeBERTa) run on the CPU.

    Args:
        folder: of a model, with its config.json. Its weights are not read.
    """
    key = (folder / "config.json").read_bytes(), encoder
    if key not in _counted:
        try:
            _counted[key] = _gmacs(folder, "meta", encoder)
        except RuntimeError:
            _counted[key] = _gmacs(folder, "cpu", encoder)
    return _counted[key]


def _gmacs(folder: Path, device: str, encoder: bool) -> float:
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoConfig

    with torch.device(device), torch.random.fork_rng(devices=[]):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        model = (
            auto_class(config)
            .from_config(config, attn_implementation="eager", trust_remote_code=False)
            .eval()
            .requires_grad_(False)
        )
        ids = torch.zeros((1, min(LENGTH, max_length(config))), dtype=torch.long)
        ids[:, -1] = end_token(config) or 0
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        (encode if encoder else logits)(model, {"input_ids": ids})
    return counter.get_total_flops() / 2 / 1e9


def per_million(hourly_rate: float, milliseconds: float, rows: int) -> float:
    """Price of a million rows on a machine that costs `hourly_rate` and takes `milliseconds` for a number of rows."""
    return hourly_rate * (milliseconds / 3.6e6) * (1e6 / rows)
