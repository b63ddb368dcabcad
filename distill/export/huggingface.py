"""The folder a user deploys."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from distill.checkpoint import writing
from distill.config import DataError

FILES = (
    "*.safetensors",
    "model.safetensors.index.json",
    "config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.model",
)


def export_folder(source: Path, out: Path, card: str, also: Sequence[tuple[Path, str]] = ()) -> None:
    """Copy weights (safetensors), config and tokenizer of `source` to the new folder `out`; `card` is its README.md.

    `also` are further files and folders, and where they go below `out`. All of it is there at once, or nothing.
    """
    found = sorted({path for pattern in FILES for path in source.glob(pattern)})
    for needed in ("config.json", "*.safetensors", "tokenizer*"):
        if not any(path.match(needed) for path in found):
            raise DataError(f"{source}: got no {needed} file; must be a saved model with its tokenizer")
    with writing(out) as temporary:
        for path in found:
            shutil.copy2(path, temporary)
        for path, place in also:
            (temporary / place).parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if path.is_dir() else shutil.copy2
            copy(path, temporary / place)
        (temporary / "README.md").write_text(card, encoding="utf-8")
