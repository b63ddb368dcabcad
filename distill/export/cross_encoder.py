"""Exported rerankers as sentence-transformers' CrossEncoder loads them: with the activation of their teacher."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from distill.checkpoint import read_json, write_json

PIPELINE = "text-ranking"
"""Name on the Hugging Face hub of what a reranker does."""
SIGMOID = "torch.nn.modules.activation.Sigmoid"
"""The activation of a reranker that sets none: sentence-transformers' default for one output."""
SETTINGS, KEY, OLD_KEY = "sentence_transformers", "activation_fn", "sbert_ce_default_activation_function"
"""Entry of config.json and the setting in it, and the entry in versions of sentence-transformers before 4."""


def activation(folders: Sequence[Path]) -> str:
    """The class of torch that turns the logits of a reranker into scores: that of the first of these model folders
    whose files set one, else `SIGMOID`.

    Classes of other packages are left out, as sentence-transformers does, because loading them would run their code.
    """
    names = (name for folder in folders for name in _settings(folder))
    return next((name for name in names if isinstance(name, str) and name.startswith("torch.nn.")), SIGMOID)


def _settings(folder: Path) -> Iterator[Any]:
    """The settings of a folder, in the order of precedence of sentence-transformers 6."""
    for file in ("config_sentence_transformers.json", "config.json"):
        values = read_json(folder / file) if (folder / file).is_file() else {}
        nested = values.get(SETTINGS)
        yield values.get(KEY)
        yield nested.get(KEY) if isinstance(nested, dict) else None
        yield values.get(OLD_KEY)


def configure(folder: Path, name: str) -> None:
    """Set the activation in the config of an exported folder, and of each quantized model in it that has one."""
    for file in sorted(folder.rglob("config.json")):
        settings = {key: value for key, value in read_json(file).items() if key != OLD_KEY}
        write_json(file, settings | {SETTINGS: {KEY: name}})
