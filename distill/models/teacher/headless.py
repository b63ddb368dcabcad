"""A fine-tuned model without its head, which can learn tasks with other labels."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from safetensors.torch import save_file

from distill.models.families.head import HEADS, architecture_in
from distill.models.families.record import VECTORS
from distill.models.families.records import FAMILIES
from distill.models.families.sentence import OF_CROSS_ENCODERS
from distill.models.families.weights import check_inside, tensors_of
from distill.models.teacher.files import stored
from distill.models.teacher.folders import FILES
from distill.runtime.storage import atomic, run_folder

OF_HEAD = ("id2label", "label2id", "num_labels", "problem_type", "architectures", *OF_CROSS_ENCODERS)
"""Keys of a config that describe a head, and what is made of its outputs."""
OF_EMBEDDER = ("modules.json", "sentence_*_config.json", "config_sentence_transformers.json")
"""Files of sentence-transformers."""


def without_head(folder: str, target: Path, content: str) -> str:
    """A copy of the model in `folder`, at `target`, without the last linear layer of its head.

    Returns `folder` itself for a model without a head, and for an embedder, whose last layer makes its vectors.

    Args:
        content: hash of the files in `folder`; a copy of other files is replaced.

    Raises:
        DataError: for a folder without whole weights in safetensors, and for a link that leads out of it.
    """
    source, architecture = Path(folder), architecture_in(folder)
    if architecture in (None, VECTORS):
        return folder
    if run_folder.finished(target) and atomic.read_json(target / run_folder.MANIFEST) == {"copy_of": content}:
        return str(target)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    record = FAMILIES.get(str(config.get("model_type")))
    starts = {"", record.outer if record else ""}
    last = {f"{s}{name}.{part}" for s in starts for name in HEADS[str(architecture)] for part in ("weight", "bias")}
    with atomic.writing(target) as temporary:
        for file in {file for pattern in FILES for file in source.glob(pattern)}:
            # Of a cross-encoder, or left from the embedder whose folder it was saved over.
            of_embedder = any(file.match(pattern) for pattern in OF_EMBEDDER)
            if "safetensors" not in file.name and file.name != run_folder.MANIFEST and not of_embedder:
                check_inside(source, file)
                shutil.copy(file, temporary)
        atomic.write_json(temporary / "config.json", {k: v for k, v in config.items() if k not in OF_HEAD})
        kept = tensors_of(source).keys() - last
        save_file(dict(stored(source, kept)), temporary / "model.safetensors", {"format": "pt"})
        atomic.write_json(temporary / run_folder.MANIFEST, {"copy_of": content})
    return str(target)
