"""A model folder as every stage writes it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distill import checkpoint, family

_CODE = ("auto_map", "custom_pipelines")


@contextmanager
def write_model(folder: Path, model: Any, tokenizer: Any, manifest: dict[str, Any]) -> Iterator[Path]:
    """A model folder that any transformers loads, with its tokenizer and its manifest, whole or not there.

    The block may add files to the temporary folder it is given, and what it raises leaves no folder.
    """
    tokenizer = copy.copy(tokenizer)
    # It then makes just the inputs the model was trained on.
    tokenizer.model_input_names = list(family.input_names(model.config))
    # A teacher's references to Python code, which a user's transformers would offer to run.
    tokenizer.init_kwargs = {name: value for name, value in tokenizer.init_kwargs.items() if name not in _CODE}
    for name in _CODE:
        if hasattr(model.config, name):
            delattr(model.config, name)
    with checkpoint.writing(folder) as temporary:
        model.save_pretrained(temporary)
        if family.family_of(model).layer is None:
            _keep_labels(temporary / "config.json", model.config)
        tokenizer.save_pretrained(temporary)
        yield temporary
        checkpoint.write_json(temporary / checkpoint.MANIFEST, manifest)


def _keep_labels(file: Path, config: Any) -> None:
    """transformers leaves two labels out of a config as if every family's default were two: BART's is three."""
    stored = checkpoint.read_json(file)
    if "id2label" not in stored and config.num_labels == 2:
        names = {"id2label": config.id2label, "label2id": config.label2id}
        checkpoint.write_json(file, stored | names)
