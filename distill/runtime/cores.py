"""The number of CPU cores of this process."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path


def cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Number of CPU cores that this process may use, of its machine or of its container (cgroups, version 2 or 1)."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(allowed, _limit(cgroup) or allowed)


def _limit(cgroup: Path) -> int | None:
    """Cores whose time a container may take, rounded up; None without a limit. Of more threads, some would always stand
    still, while the others wait for them."""
    with suppress(OSError, ValueError):  # the file is missing, or contains `max`
        quota, period = (cgroup / "cpu.max").read_text().split()
        return math.ceil(int(quota) / int(period))
    with suppress(OSError, ValueError):
        most, each = (int((cgroup / "cpu" / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        return math.ceil(most / each) if most > 0 else None
    return None
