"""Costs of a model that need no timing: parameters, bytes on disk, multiply-accumulates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from distill.family import auto_class, logits, max_length

LENGTH = 128

DENSE = "*_Dense/*.safetensors"
"""The linear layer of an embedder."""


def parameters(folder: Path) -> int:
    """Number of parameters in the safetensors files of a model folder."""
    from safetensors import safe_open

    total = 0
    for file in sorted([*folder.glob("*.safetensors"), *folder.glob(DENSE)]):
        with safe_open(file, framework="numpy") as tensors:
            for name in tensors.keys():
                size = 1
                for extent in tensors.get_slice(name).get_shape():
                    size *= extent
                total += size
    return total


def size_mib(path: Path) -> float:
    """Size of the weights on disk (an ONNX file, or the weight files of a folder) in MiB."""
    files = (
        [path]
        if path.is_file()
        else sorted(file for ending in ("*.safetensors", "*.bin", DENSE) for file in path.glob(ending))
    )
    return sum(file.stat().st_size for file in files) / 2**20


def size_mib_of(config: Any) -> float:
    """Size of a sequence classifier's float32 weights in MiB, computed from its config."""
    import torch

    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        model = auto_class(config).from_config(config, trust_remote_code=False)
    return sum(parameter.numel() for parameter in model.parameters()) * 4 / 2**20


def gmacs(folder: Path) -> float:
    """Billions of multiply-accumulates for one sequence of 128 tokens (or the model's maximum), counted by torch.

    Runs on meta tensors, without computing; models whose code depends on values (DeBERTa) run on the CPU.
    """
    try:
        return _gmacs(folder, "meta")
    except RuntimeError:
        return _gmacs(folder, "cpu")


def _gmacs(folder: Path, device: str) -> float:
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
        ids[:, -1] = getattr(config, "eos_token_id", None) or 0  # BART and T5 classify at the last token
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        logits(model, {"input_ids": ids})
    return counter.get_total_flops() / 2 / 1e9
