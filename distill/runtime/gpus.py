"""A GPU of its own for each job of a sweep.

PyTorch gives every process the first GPU that it sees. Jobs that run side by side would therefore all compute on one.
"""

from __future__ import annotations

import errno
import itertools
import os
import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable with the GPUs that CUDA shows to a process, which reads it once, before it uses one."""
_NAMES = "distill-gpu-"
"""How the names begin that stand for GPUs."""
_STARTS = threading.Lock()
"""Threads share the environment."""


def visible() -> list[str]:
    """The GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` names them."""
    if not any(Path("/dev").glob("nvidia[0-9]*")) and not Path("/dev/kfd").exists():
        return []  # without torch, which takes seconds to import
    import torch

    count = torch.cuda.device_count()
    named = os.environ.get(VISIBLE)
    return [str(number) for number in range(count)] if named is None else named.split(",")[:count]


@contextmanager
def one_of(gpus: Sequence[str]) -> Iterator[str | None]:
    """Of several GPUs, the first of those that the fewest jobs on this machine have, until the end of the block; None
    if there are fewer than two.

    A name of Linux's abstract sockets stands for a GPU and a number, of which each of its jobs has another. Whoever
    binds it has taken it, until its process ends, however it ends.
    """
    if len(gpus) < 2 or sys.platform != "linux":
        yield None
        return
    taken = set[str]()
    while True:
        taken |= _listed()
        jobs = Counter(each.rpartition("-")[0] for each in taken)
        gpu = min(gpus, key=jobs.__getitem__)
        # The lowest: of two jobs that see the same names, the second finds it taken, and counts the first.
        own = next(each for number in itertools.count() if (each := f"{gpu}-{number}") not in taken)
        with socket.socket(socket.AF_UNIX) as name:
            try:
                name.bind(f"\0{_NAMES}{own}")
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    taken.add(own)
                    continue
                yield None  # a machine that allows no such names: its jobs share the first GPU
                return
            yield gpu
            return


def _listed() -> set[str]:
    """What follows `_NAMES` in the names that jobs have bound; empty where the system does not list them."""
    try:
        lines = Path("/proc/net/unix").read_text(errors="replace").splitlines()
    except OSError:
        return set()
    # The zero byte at the beginning of an abstract name is listed as @.
    return {each for line in lines if (each := line.partition(f"@{_NAMES}")[2])}


@contextmanager
def shown(gpu: str | None) -> Iterator[None]:
    """Within the block, processes that are started see this GPU alone; None changes nothing."""
    if gpu is None:
        yield
        return
    with _STARTS:
        before = os.environ.get(VISIBLE)
        os.environ[VISIBLE] = gpu
        try:
            yield
        finally:
            os.environ.pop(VISIBLE)
            if before is not None:
                os.environ[VISIBLE] = before
