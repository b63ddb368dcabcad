"""A hash of a folder's weights, by which a change of them is seen."""

from __future__ import annotations

from pathlib import Path

from distill.runtime.storage import checksums, file_hashes

WEIGHTS = "model.safetensors"
HASH = "sha256:"
"""Beginning of a hash."""


def content_of(folder: Path, path: str) -> str | None:
    """Hash of the file or folder of an artifact, below the exported folder; None for that folder itself, and for what
    cannot be read."""
    place = folder / path
    try:
        if path == "." or not place.exists():
            return None
        if place.is_dir():
            return HASH + checksums.fingerprint(file_hashes.of_folder(place))
        return HASH + file_hashes.sha256(place) if place.is_file() else None
    except OSError:
        return None


def hashed(folder: Path) -> str | None:
    """Hash of a folder's weights; None without a file of them that can be read."""
    if not (folder / WEIGHTS).is_file():  # a pipe would be waited for
        return None
    try:
        return HASH + file_hashes.sha256(folder / WEIGHTS)
    except OSError:
        return None
