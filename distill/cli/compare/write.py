"""Writes a comparison: compare.json, and a page that is made from it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distill.cli.compare import page
from distill.errors import ConfigError
from distill.report import html
from distill.runtime import quoting
from distill.runtime.storage import outputs
from distill.runtime.storage.checksums import fingerprint

PAGE, RESULTS = "compare.html", "compare.json"
_LONGEST = 110
"""Bytes of the name of a model in that of a folder."""


def told_apart(a: str | Path, b: str | Path, file: str, options: Mapping[str, Any]) -> str:
    """What tells a comparison from others: the places of the models and of the rows, and the options of both."""
    places = [str(Path(model).resolve()) for model in (a, b)]
    return fingerprint([*places, file if "://" in file else str(Path(file).resolve()), options])


def check(folder: Path, about: str, file: str, *, overwrite: bool = False) -> None:
    """Refuse a folder for a comparison in which it would replace another's files, or its own rows."""
    outputs.check_all(folder, (PAGE, RESULTS), "--output", about=about, overwrite=overwrite)
    if (name := next((name for name in (PAGE, RESULTS) if outputs.is_input(folder / name, [file])), None)) is not None:
        raise ConfigError(f"--output: got {folder}, whose {name} the command reads; must be another; choose one")


def write(comparison: dict[str, Any], asked: Path | None, about: str, *, overwrite: bool = False) -> dict[str, Path]:
    """Write both files into a folder, each atomically. Returns name -> path of each.

    Args:
        asked: the folder; `outputs/compare/A-vs-B` when None, with the names of the models' folders, and with a number
            after it where another comparison is there.
        about: what tells the comparison from others.
        overwrite: whether the files of another are replaced.

    Raises:
        ConfigError: if one of them is another's, and for a folder that cannot be written.
    """
    content = json.dumps(comparison, indent=2, allow_nan=False) + "\n"
    shown = html.document(page.title(comparison), page.blocks(comparison))
    a, b = (_short(re.sub(r"[^\w.-]+", "_", model["name"])) for model in comparison["models"].values())
    folder = Path("outputs", "compare", f"{a}-vs-{b}") if asked is None else asked
    try:
        # Last, because another comparison may have taken the folder while this one was at work.
        folder = outputs.free_folder(folder, (PAGE, RESULTS), about) if asked is None else asked
        files = {PAGE: shown.encode(), RESULTS: content.encode()}
        outputs.write_all(folder, files, "--output", about=about, overwrite=overwrite)
    except OSError as error:
        raise ConfigError(
            f"--output: got {folder}; must be a folder that can be made and written ({error.strerror or error}); set "
            f"{quoting.option('--output', 'FOLDER')}"
        ) from error
    return {"page": folder / PAGE, "results": folder / RESULTS}


def _short(name: str) -> str:
    """The beginning of a name: file systems take 255 bytes for both."""
    return name.encode(errors="replace")[:_LONGEST].decode(errors="ignore")
