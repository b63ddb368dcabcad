"""What the numbers of a run depend on besides its settings: machine, arithmetic, versions."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from distill.stages.context import Context

PACKAGES = ("torch", "transformers", "accelerate", "onnxruntime", "bitsandbytes", "torchao", "openvino")


def environment(ctx: Context) -> dict[str, Any]:
    """What the numbers depend on: machine, arithmetic, versions."""
    import torch

    gpu = torch.cuda.get_device_name() if ctx.accelerator.device.type == "cuda" else None
    facts = {"training_precision": ctx.precision, "float32_fast_path": ctx.fast_float32}
    return machine(ctx.threads, gpu) | facts | {"processes": ctx.accelerator.num_processes}


def machine(threads: int, gpu: str | None = None) -> dict[str, Any]:
    """Processor, threads, versions of what computes."""
    facts = {"cpu": _cpu(), "threads": threads, "gpu": gpu}
    facts |= {"python": platform.python_version(), "os": platform.system()}
    return facts | {name: _version(name) for name in PACKAGES}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.is_file() else []
    named = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return named or platform.processor() or platform.machine()
