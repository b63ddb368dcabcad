"""The facts that a run's results depend on besides its settings: machine, arithmetic and package versions."""

from __future__ import annotations

import functools
import hashlib
import platform
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distill import __version__
from distill.runtime.cores import LISTED, MOUNTED, groups

if TYPE_CHECKING:
    from distill.runtime.machine import Machine  # which imports torch: reports need only the names of packages

PACKAGES = (
    *("torch", "transformers", "tokenizers", "accelerate", "numpy", "onnx"),
    *("onnxruntime", "bitsandbytes", "torchao", "openvino", "nncf"),
)
"""Packages that make or run a timed model."""

FLAGS = (
    *("sse4_2", "avx", "avx2", "fma", "avx512f", "avx512bw", "avx512_vnni", "avx_vnni", "avx_vnni_int8"),
    *("avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16"),
    *("asimddp", "i8mm", "bf16", "sve"),
)
"""Features of x86 and ARM processors, as Linux names them, on which the speed or the outputs of models depend."""
VNNI = ("avx512_vnni", "avx_vnni", "amx_int8")
"""Any of these multiplies 8-bit numbers without an intermediate sum of 16 bits."""


def environment(machine: Machine) -> dict[str, Any]:
    """Machine, arithmetic and package versions of a run, as in results.json."""
    arithmetic = {"training_precision": machine.precision, "float32_fast_path": machine.fast_float32}
    return hardware(machine.threads, _gpu(machine)) | arithmetic | {"processes": machine.accelerator.num_processes}


def processor(machine: Machine) -> dict[str, Any]:
    """The facts that times depend on besides threads and settings: another processor has other times."""
    return {"cpu": _cpu(), "cpu_flags": " ".join(cpu_flags()), "gpu": _gpu(machine)}


@functools.cache
def versions() -> dict[str, str | None]:
    """Versions of distill (with its commit, in a checkout), torch and transformers."""
    return {"distill": _version_and_commit(), "torch": _version("torch"), "transformers": _version("transformers")}


def _version_and_commit() -> str:
    """The version of distill; in a checkout, with its commit, or the hash of its source where files were changed."""
    of_source = commit()
    if of_source is None:
        return __version__
    return f"{__version__} ({of_source}{f', {source_hash()}' if of_source.endswith('-dirty') else ''})"


@functools.cache
def source_hash() -> str:
    """Hash of the source of distill, which differs where the same settings may give other models."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def commit() -> str | None:
    """Commit of the source in a checkout, with `-dirty` if files were changed since; None for an installed package."""
    import subprocess

    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]
    try:
        described = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip()


def hardware(threads: int, gpu: str | None = None) -> dict[str, Any]:
    """Processor with its `FLAGS`, threads, GiB of memory, frequency governor, operating system, commit of distill, and
    the versions of Python and `PACKAGES`."""
    import psutil

    machine = {"cpu": _cpu(), "cpu_flags": " ".join(cpu_flags()), "threads": threads, "gpu": gpu}
    machine |= {"memory_gib": round(psutil.virtual_memory().total / 2**30, 1), "governor": _governor()}
    machine |= {"python": platform.python_version(), "os": platform.system(), "commit": commit()}
    return machine | {name: _version(name) for name in PACKAGES}


def memory(cgroup: Path = MOUNTED, listed: Path = LISTED) -> int | None:
    """Bytes of memory and swap that this machine has, or that its container, or its job or service, may use.

    None outside Linux: other systems make swap when it is needed.
    """
    import psutil

    if platform.system() != "Linux":
        return None
    ram, swap = psutil.virtual_memory().total, psutil.swap_memory().total
    for folder in groups("memory", cgroup, listed):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):  # the file is missing, or contains `max`
                ram = min(ram, int((folder / name).read_text()))
        with suppress(OSError, ValueError):
            swap = min(swap, int((folder / "memory.swap.max").read_text()))
    return int(ram + swap)


def _gpu(machine: Machine) -> str | None:
    import torch

    return torch.cuda.get_device_name() if machine.device.type == "cuda" else None


def installed(packages: Sequence[str]) -> dict[str, str | None]:
    """Package -> its version; None if it is not installed."""
    return {name: _version(name) for name in packages}


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """The flags of `FLAGS` that the processor has, in that order; empty where the system does not list them."""
    listed = _fact(cpuinfo, "flags") or _fact(cpuinfo, "Features")
    return [flag for flag in FLAGS if flag in listed.split()]


def saturates(flags: Sequence[str]) -> bool:
    """Whether products of 8-bit activations and weights may overflow on a processor with these flags.

    Without VNNI, an x86 processor adds two products of an unsigned and a signed 8-bit number in signed 16 bits
    (`vpmaddubsw`), which hold at most 32,767 of the possible 2 x 255 x 127. ONNX Runtime's answer is to use 7 bits for
    weights (`reduce_range`): https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html. NNCF's,
    for OpenVINO, is the same (`overflow_fix`).
    """
    return "avx2" in flags and not set(VNNI) & set(flags)


def _governor() -> str:
    """The policy that sets the processor's frequency; `unknown` where the system does not name it."""
    file = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    try:
        return file.read_text().strip() or "unknown"
    except OSError:
        return "unknown"


def _cpu(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    return _fact(cpuinfo, "model name") or platform.processor() or platform.machine()


def _fact(cpuinfo: Path, name: str) -> str:
    """Value of the first line `name : value` of the file; empty without such a line."""
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    pairs = (line.partition(":") for line in lines)
    return next((value.strip() for key, _, value in pairs if key.strip() == name), "")
