"""Peak memory of a block of code, and the memory that is left, if the system measures them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from distill.runtime.versions import memory


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


def left() -> int | None:
    """Bytes of memory and swap that this process can still take, on this machine or in its container; None outside of
    Linux."""
    import psutil

    if (most := memory()) is None:
        return None
    free = psutil.virtual_memory().available + psutil.swap_memory().free
    return int(min(free, most - psutil.Process().memory_info().rss))
