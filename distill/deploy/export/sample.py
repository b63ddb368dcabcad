"""A hash of a part of a folder's weights, by which a change of them is seen without reading all of them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

WEIGHTS = "model.safetensors"
BYTES = 4096
"""Bytes of each tensor, from its beginning. A training changes all of them."""
MOST = 100_000_000
"""Largest header, as of the library safetensors."""


def sampled(folder: Path) -> str | None:
    """Hash of the header and of the beginning of each tensor of a folder's weights; None without a whole file."""
    digest = hashlib.blake2b(digest_size=16)
    if not (folder / WEIGHTS).is_file():  # a pipe would be waited for
        return None
    try:
        with (folder / WEIGHTS).open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if size > MOST:
                return None
            header = file.read(size)
            digest.update(header)
            tensors = json.loads(header)
            tensors.pop("__metadata__", None)
            for begin, end in sorted(each["data_offsets"] for each in tensors.values()):
                file.seek(8 + size + begin)
                digest.update(file.read(min(BYTES, end - begin)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return digest.hexdigest()
