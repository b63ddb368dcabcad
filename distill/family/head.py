"""The classifier in a model folder, read from its config and from the headers of its weights. Without torch."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from distill.family import vectors
from distill.family.record import ANSWERS, CHOICES, TEXTS, TOKENS, VECTORS
from distill.family.records import FAMILIES
from distill.family.sentence import check_no_prompt

HEADS: dict[str, tuple[str, ...]] = {
    TEXTS: tuple(sorted({family.head for family in FAMILIES.values()})),
    TOKENS: ("classifier", "score"),
    CHOICES: ("classifier", "logits_proj"),
    ANSWERS: ("qa_outputs", "classifier"),
    VECTORS: ("dense",),
}
"""Architecture -> names of its last linear layer, which depend on the family. Many embedders have none."""


@dataclass(frozen=True)
class Head:
    """The head of a fine-tuned model; also what makes an encoder an embedder."""

    outputs: int
    labels: tuple[str, ...]
    """Names of the outputs; empty where the config has none but `LABEL_0` and so on, transformers' defaults."""
    problem: str | None
    """`problem_type` of the config."""
    architecture: str = TEXTS
    """Of `HEADS`."""
    prompts: tuple[str, str] = ("", "")
    """What an embedder puts before a query and before a document."""
    prompt: str = ""
    """What an embedder puts before any other text."""


def stored_head(folder: str | Path) -> Head | None:
    """The head in a model folder; None if it has none, and for a folder that cannot be read.

    DataError for an embedder that is not supported: its encoder alone would be another model.
    """
    config = _config(Path(folder))
    given = architecture_of(config.get("architectures"))
    if given:
        check_no_prompt(folder)
    found = None if given else vectors.read(folder)
    if not config:
        return None
    try:
        if found is not None:
            width = found.width or config.get("hidden_size") or config.get("dim") or 1
            return Head(int(width), (), None, VECTORS, found.pair_of_prompts, found.prompt)
        outputs = _outputs(Path(folder), config)
        names = {int(number): str(name) for number, name in (config.get("id2label") or {}).items()}
    # Also a config of another form.
    except (OSError, ValueError, SafetensorError, AttributeError, TypeError, KeyError):
        return None
    if outputs is None:
        return None
    labels = tuple(names[number] for number in range(outputs)) if sorted(names) == list(range(outputs)) else ()
    if all(re.fullmatch(r"LABEL_\d+", label) for label in labels):
        labels = ()
    return Head(outputs, labels, config.get("problem_type"), given or TEXTS)


def _config(folder: Path) -> dict[str, Any]:
    """The config of a folder; empty for one that cannot be read, and for one of another form."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    right = isinstance(config, dict) and isinstance(config.get("architectures") or [], list)
    return config if right else {}


def architecture_of(names: Sequence[Any] | None) -> str | None:
    """The architecture of the first of these class names that has one of `HEADS`."""
    return next((head for name in names or [] for head in HEADS if head in str(name)), None)


def _outputs(folder: Path, config: dict[str, Any]) -> int | None:
    """Number of rows of the classifier's last weight matrix."""
    architectures = config.get("architectures") or []
    architecture = architecture_of(architectures)
    if architectures and architecture is None:
        return None
    weights = {f"{name}.weight" for name in HEADS[architecture or TEXTS]}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="np") as tensors:
            for name in sorted(weights & set(tensors.keys())):
                return int(tensors.get_slice(name).get_shape()[0])
    return None
