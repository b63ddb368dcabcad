"""Energy of a block of work, where the machine counts it: RAPL of the processor and NVML of a GPU, through zeus."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from distill.runtime import quoting

Meter = Callable[[Callable[[], None]], float]
"""Runs the work and returns the joules that processor, memory and GPU used meanwhile, also for other programs."""
Missing = str
"""Why there is no meter."""


def meter(cuda: bool) -> Meter | Missing:
    """A meter of this machine's processor packages and, with `cuda`, of the first GPU; else the reason why it is
    missing.

    Energy is never estimated from power ratings.
    """
    if find_spec("zeus") is None:
        return f"the package zeus is not installed ({quoting.install('energy')})"
    from zeus.monitor import ZeusMonitor

    try:
        monitor = ZeusMonitor(gpu_indices=[0] if cuda else [])
    except Exception as error:  # drivers and permissions fail in many ways, which should not end a run
        return f"zeus does not start: {' '.join(str(error).split())[:120]}"
    if not monitor.cpu_indices:
        return "the processor's energy counters (RAPL) cannot be read"
    return of_monitor(monitor)


def of_monitor(monitor: Any) -> Meter:
    """The meter of a `ZeusMonitor`."""

    def joules(work: Callable[[], None]) -> float:
        monitor.begin_window("work", sync_execution=False)  # the work waits for the GPU itself
        work()
        used = monitor.end_window("work", sync_execution=False)
        parts = (used.cpu_energy, used.dram_energy, used.gpu_energy)
        return float(sum(sum(part.values()) for part in parts if part))

    return joules
