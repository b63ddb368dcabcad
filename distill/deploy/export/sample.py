"""A hash of a folder's weights, by which a change of them is seen."""

from __future__ import annotations

from pathlib import Path

from distill.runtime.storage import file_hashes

WEIGHTS = "model.safetensors"
ALL = "sha256:"
"""Beginning of a hash of all weights. Hashes without it are of older exports, and of a part of the weights alone."""


def hashed(folder: Path) -> str | None:
    """Hash of a folder's weights; None without a file of them that can be read."""
    if not (folder / WEIGHTS).is_file():  # a pipe would be waited for
        return None
    try:
        return ALL + file_hashes.sha256(folder / WEIGHTS)
    except OSError:
        return None
