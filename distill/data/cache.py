"""The user's cache: parsed files and token ids, which later runs use again.

It is the folder `distill` in `$XDG_CACHE_HOME`, or in `~/.cache`. Nothing is removed there: delete the folder to free
disk space.
"""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path


def cache_folder(name: str) -> Path:
    """The folder `name` of the cache; a temporary folder, removed when the process ends, if it cannot be written."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "distill"
    return writable(root / name)


def writable(folder: Path) -> Path:
    """The folder, created if it does not exist; a temporary folder if it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return Path(_temporary().name)


@functools.cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    """One folder for the process, which is removed when it ends."""
    return tempfile.TemporaryDirectory(prefix="distill-cache-", ignore_cleanup_errors=True)
