"""Refuses files of the running system, which hold its environment: a stranger's config or link may name one."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from typing import Any

from distill.data import folders
from distill.runtime.storage.outputs import spellings

_SYSTEM = ("/proc/", "/sys/")


def system_files(key: str, value: Any, folder: str | None = None) -> Iterator[str]:
    """A line for each path of a setting that leads to such a file. `value`: a path, a pattern, or paths in a list or a
    mapping; `folder`: what they are relative to."""
    if isinstance(value, Mapping | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from system_files(key, part, folder)
    elif isinstance(value, str):
        paths = [os.path.join(folder or "", spelling) for spelling in spellings(value)]
        for file in [
            each for path in paths for each in (path, *glob.iglob(path, recursive=True), *folders.inside(path))
        ]:
            # A pipe of the shell, `<(...)`, lies there too, and is no file.
            if (real := os.path.realpath(file)).startswith(_SYSTEM) and os.path.isfile(real):
                yield f"{key}: got {value}, which leads to {real}; must be a file on a disk; name another"
                return
