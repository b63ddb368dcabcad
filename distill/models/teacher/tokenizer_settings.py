"""Settings of a folder's tokenizer that are refused: they would read files elsewhere, or run other classes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distill.errors import DataError

FILES = ("tokenizer_config.json", "config.json")
ELSEWHERE = ("vocab", "merges", "gguf_file", "init_inputs", "tokenizer_object", "fast_tokenizer_files")
"""Settings from which transformers takes a file, or an object, that no `save_pretrained` writes there."""


def read(file: Path) -> dict[str, Any]:
    """The settings of a file; empty without one."""
    found = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found if isinstance(found, dict) else {}


def check(path: str | Path) -> None:
    """Raise DataError for a setting that names a file elsewhere, or a class that is no tokenizer."""
    own = read(Path(path) / FILES[0])
    for name in ELSEWHERE:
        if own.get(name):
            raise DataError(
                f"{Path(path) / FILES[0]}: got {name}; must have no such setting, because a vocabulary is read from "
                "the folder's own files; remove it"
            )
    for file in FILES:
        _check_class(Path(path) / file, read(Path(path) / file))


def _check_class(file: Path, settings: Mapping[str, Any]) -> None:
    from transformers.models.auto.tokenization_auto import tokenizer_class_from_name
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase

    named = settings.get("tokenizer_class")
    if not isinstance(named, str):
        return
    found = tokenizer_class_from_name(named)
    # Without a package that it needs, a class of transformers has a stand-in, which says so.
    if found is not None and not hasattr(found, "_backends") and not issubclass(found, PreTrainedTokenizerBase):
        raise DataError(
            f"{file}: got tokenizer_class {named}; must be a tokenizer of transformers; correct it, or save the "
            "tokenizer again with save_pretrained"
        )
