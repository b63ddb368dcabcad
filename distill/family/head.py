"""The classifier in a model folder, read from its config and from the headers of its weights. Without torch."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from distill.family.records import FAMILIES

TEXTS, TOKENS = "ForSequenceClassification", "ForTokenClassification"
"""Endings of the class names of models with a classifier of whole texts, and of each token."""
TOKEN_HEADS = ("classifier", "score")
"""Names of the linear layer that classifies tokens, in every family."""


@dataclass(frozen=True)
class Head:
    """A classifier of texts."""

    outputs: int
    labels: tuple[str, ...]
    """Names of the outputs; empty where the config has none but `LABEL_0` and so on, transformers' defaults."""
    problem: str | None
    """`problem_type` of the config."""
    per_token: bool = False
    """Whether it classifies each token, and not the whole text."""


def stored_head(folder: str | Path) -> Head | None:
    """The classifier in a model folder; None if it has none, and for a folder that cannot be read."""
    try:
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
        outputs = _outputs(Path(folder), config)
        names = {int(number): str(name) for number, name in (config.get("id2label") or {}).items()}
    except (OSError, ValueError, SafetensorError, AttributeError, TypeError):  # also a config of another form
        return None
    if outputs is None:
        return None
    labels = tuple(names[number] for number in range(outputs)) if sorted(names) == list(range(outputs)) else ()
    if all(re.fullmatch(r"LABEL_\d+", label) for label in labels):
        labels = ()
    return Head(outputs, labels, config.get("problem_type"), _per_token(config))


def _per_token(config: dict[str, Any]) -> bool:
    return any(str(name).endswith(TOKENS) for name in config.get("architectures") or [])


def _outputs(folder: Path, config: dict[str, Any]) -> int | None:
    """Number of rows of the classifier's last weight matrix."""
    architectures = config.get("architectures") or []
    if architectures and not any(str(name).endswith((TEXTS, TOKENS)) for name in architectures):
        return None
    heads = TOKEN_HEADS if _per_token(config) else {family.head for family in FAMILIES.values()}
    weights = {f"{head}.weight" for head in heads}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="np") as tensors:
            for name in sorted(weights & set(tensors.keys())):
                return int(tensors.get_slice(name).get_shape()[0])
    return None
