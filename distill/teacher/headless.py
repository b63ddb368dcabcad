"""A fine-tuned model without its head, which can learn tasks with other labels."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from safetensors.torch import save_file

from distill import checkpoint
from distill.family.head import HEADS, stored_head
from distill.family.record import VECTORS
from distill.teacher.files import check_weights, stored_except

OF_HEAD = ("id2label", "label2id", "num_labels", "problem_type")
"""Keys of a config that describe a head."""


def without_head(folder: str, target: Path) -> str:
    """A copy of the model in `folder`, at `target`, without the last linear layer of its head.

    `folder` itself for a model without a head, and for an embedder, whose last layer makes its vectors.

    Raises:
        DataError: for a folder without whole weights in safetensors.
    """
    source, head = Path(folder), stored_head(folder)
    if head is None or head.architecture == VECTORS:
        return folder
    if checkpoint.finished(target):
        return str(target)
    check_weights(source)
    last = {f"{name}.{part}" for name in HEADS[head.architecture] for part in ("weight", "bias")}
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    with checkpoint.writing(target) as temporary:
        for file in source.iterdir():
            if file.is_file() and "safetensors" not in file.name:
                shutil.copy(file, temporary)
        checkpoint.write_json(temporary / "config.json", {k: v for k, v in config.items() if k not in OF_HEAD})
        save_file(dict(stored_except(source, last)), temporary / "model.safetensors", {"format": "pt"})
        checkpoint.write_json(temporary / checkpoint.MANIFEST, {"without_head": source.name})
    return str(target)
