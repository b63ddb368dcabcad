"""The folder a user deploys."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from distill.checkpoint import writing
from distill.errors import DataError

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


def found(source: Path) -> list[Path]:
    """Weights (safetensors), config and tokenizer of a folder. DataError where one is missing."""
    files = sorted({path for pattern in FILES for path in source.glob(pattern)})
    for needed in ("config.json", "*.safetensors", "tokenizer*"):
        if not any(path.match(needed) for path in files):
            raise DataError(f"{source}: got no {needed} file; must be a saved model with its tokenizer")
    return files


def export_folder(source: Path, out: Path, card: str, also: Sequence[tuple[Path, str]] = ()) -> None:
    """Copy weights (safetensors), config and tokenizer of `source` to the new folder `out`; `card` is its README.md.

    `also` are further files and folders, and where they go below `out`. All of it is there at once, or nothing.
    """
    files = found(source)
    with writing(out) as temporary:
        for path in files:
            shutil.copy2(path, temporary)
        for path, place in also:
            # One by one: copytree would not say which error it met.
            for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
                if file.is_file():
                    put = temporary / place / file.relative_to(path)
                    put.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(file, put)
        (temporary / "README.md").write_text(card, encoding="utf-8")
