"""What the results of a run depend on besides its settings: machine, arithmetic and package versions."""

from __future__ import annotations

import functools
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distill import __version__

if TYPE_CHECKING:
    from distill.machine import Machine  # which imports torch: reports need only the names of packages

PACKAGES = ("torch", "transformers", "accelerate", "onnxruntime", "bitsandbytes", "torchao", "openvino")


def environment(machine: Machine) -> dict[str, Any]:
    """Machine, arithmetic and package versions of a run, as in results.json."""
    import torch

    gpu = torch.cuda.get_device_name() if machine.device.type == "cuda" else None
    arithmetic = {"training_precision": machine.precision, "float32_fast_path": machine.fast_float32}
    return hardware(machine.threads, gpu) | arithmetic | {"processes": machine.accelerator.num_processes}


@functools.cache
def versions() -> dict[str, str | None]:
    """Versions of distill (with its commit, in a checkout), torch and transformers."""
    return {"distill": _commit(), "torch": _version("torch"), "transformers": _version("transformers")}


def _commit() -> str:
    """The version of distill; in a checkout, with its commit."""
    root = Path(__file__).parent.parent
    if not (root / ".git").exists():
        return __version__
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]
    try:
        described = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return __version__
    return f"{__version__} ({described.stdout.strip()})"


def hardware(threads: int, gpu: str | None = None) -> dict[str, Any]:
    """Processor, CPU threads, operating system and the versions of Python and `PACKAGES`."""
    machine = {"cpu": _cpu(), "threads": threads, "gpu": gpu}
    machine |= {"python": platform.python_version(), "os": platform.system()}
    return machine | {name: _version(name) for name in PACKAGES}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.is_file() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return model or platform.processor() or platform.machine()
