"""The number of CPU cores of this process, and the control groups of Linux that limit it."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path, PurePosixPath

MOUNTED, LISTED = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
"""Where Linux shows all control groups, and those of this process."""


def cores(cgroup: Path = MOUNTED, listed: Path = LISTED) -> int:
    """Number of CPU cores that this process may use, of its machine, its container, or its job or service."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = (_limit(folder) for folder in groups("cpu", cgroup, listed))
    return min([allowed, *(limit for limit in limits if limit is not None)])


def groups(controller: str, cgroup: Path, listed: Path) -> list[Path]:
    """Folders with the limits of this process, which may not exist: those of its container, its own control group and
    the groups around it, as SLURM and systemd nest them (cgroups, version 2 or 1)."""
    found = [cgroup, cgroup / controller]
    with suppress(OSError, ValueError):  # not Linux
        for line in listed.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers or controller in controllers.split(","):
                own = PurePosixPath(path.lstrip("/"))
                found += [found[bool(controllers)] / each for each in (own, *own.parents)]
    return found


def _limit(folder: Path) -> int | None:
    """Cores whose time a control group may take, rounded up; None without a limit. Of more threads, some would always
    stand still, while the others wait for them."""
    with suppress(OSError, ValueError):  # the file is missing, or contains `max`
        quota, period = (folder / "cpu.max").read_text().split()
        return math.ceil(int(quota) / int(period))
    with suppress(OSError, ValueError):
        most, each = (int((folder / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        return math.ceil(most / each) if most > 0 else None
    return None
