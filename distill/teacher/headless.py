"""A fine-tuned model without its head, which can learn tasks with other labels."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from safetensors.torch import save_file

from distill import checkpoint
from distill.family.head import HEADS, architecture_in
from distill.family.record import VECTORS
from distill.family.weights import check_inside
from distill.teacher.files import stored_except
from distill.teacher.folders import FILES

OF_HEAD = ("id2label", "label2id", "num_labels", "problem_type", "architectures")
"""Keys of a config that describe a head."""


def without_head(folder: str, target: Path, content: str) -> str:
    """A copy of the model in `folder`, at `target`, without the last linear layer of its head.

    `folder` itself for a model without a head, and for an embedder, whose last layer makes its vectors.

    Args:
        content: hash of the files in `folder`; a copy of other ones is replaced.

    Raises:
        DataError: for a folder without whole weights in safetensors, and for a link that leads out of it.
    """
    source, architecture = Path(folder), architecture_in(folder)
    if architecture in (None, VECTORS):
        return folder
    if checkpoint.finished(target) and checkpoint.read_json(target / checkpoint.MANIFEST) == {"copy_of": content}:
        return str(target)
    last = {f"{name}.{part}" for name in HEADS[str(architecture)] for part in ("weight", "bias")}
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    with checkpoint.writing(target) as temporary:
        for file in {file for pattern in FILES for file in source.glob(pattern)}:
            if "safetensors" not in file.name and file.name != checkpoint.MANIFEST:
                check_inside(source, file)
                shutil.copy(file, temporary)
        checkpoint.write_json(temporary / "config.json", {k: v for k, v in config.items() if k not in OF_HEAD})
        save_file(dict(stored_except(source, last)), temporary / "model.safetensors", {"format": "pt"})
        checkpoint.write_json(temporary / checkpoint.MANIFEST, {"copy_of": content})
    return str(target)
