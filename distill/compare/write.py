"""Writes a comparison: compare.json, and a page that is made from it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from distill.checkpoint import write_json, write_text
from distill.compare import page
from distill.errors import ConfigError
from distill.report import html


def write(comparison: dict[str, Any], folder: Path | None = None) -> dict[str, Path]:
    """Write both files into a folder, each atomically. Returns name -> path of each.

    Args:
        folder: `outputs/compare/A-vs-B` by default, with the names of the models' folders.
    """
    a, b = (re.sub(r"[^\w.-]+", "_", model["name"]) for model in comparison["models"].values())
    folder = Path("outputs", "compare", f"{a}-vs-{b}") if folder is None else folder
    paths = {"page": folder / "compare.html", "results": folder / "compare.json"}
    try:
        write_text(paths["page"], html.document(page.title(comparison), page.blocks(comparison)))
        write_json(paths["results"], comparison)
    except OSError as error:
        raise ConfigError(
            f"--output: got {folder}; must be a folder that can be made and written ({error.strerror or error}); "
            "set --output FOLDER"
        ) from error
    return paths
