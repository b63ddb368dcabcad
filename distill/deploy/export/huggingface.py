"""The model folder that a user deploys."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from distill.errors import DataError
from distill.models.families.weights import check_inside
from distill.runtime.storage.atomic import writing

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


def model_files(source: Path) -> list[Path]:
    """Weights (safetensors), config and tokenizer files of a folder.

    Raises:
        DataError: if any of the three is missing, and for a link that leads out of the folder.
    """
    files = sorted({path for pattern in FILES for path in source.glob(pattern)})
    for path in files:
        check_inside(source, path)
    for needed in ("config.json", "*.safetensors", "tokenizer*"):
        if not any(path.match(needed) for path in files):
            raise DataError(f"{source}: got no {needed} file; must be a saved model with its tokenizer")
    return files


def copied(path: Path, place: Path) -> None:
    """Copy a file or a folder to the new path `place`. Raises DataError for a link that leads out of the folder."""
    check_inside(path.parent, path)
    # File by file, because copytree wraps the errors of all files in one of its own.
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            check_inside(path if path.is_dir() else path.parent, file)
            copy = place / file.relative_to(path)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, copy)


def export_folder(source: Path, out: Path, card: str, also: Sequence[tuple[Path, str]] = ()) -> None:
    """Copy weights (safetensors), config and tokenizer of `source` to the new folder `out`, atomically.

    `card` is the text of README.md; `also` lists further files and folders with their paths below `out`.
    """
    files = model_files(source)
    with writing(out) as temporary:
        for path in files:
            shutil.copy2(path, temporary)
        for path, place in also:
            copied(path, temporary / place)
        (temporary / "README.md").write_text(card, encoding="utf-8")
