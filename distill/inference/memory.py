"""Peak memory of a block of code, if the system measures it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def peak(device: str) -> Iterator[Callable[[], float | None]]:
    """Yield a function that returns the peak since the start, in MiB: GPU memory on cuda, else resident memory.

    It returns None if the system does not measure it (outside Linux).
    """
    if device == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats()
        yield lambda: torch.cuda.max_memory_allocated() / 2**20
        return
    try:
        Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    except OSError:
        yield lambda: None
        return
    yield _high_water


def _high_water() -> float | None:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), None)
