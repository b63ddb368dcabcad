"""Settings and rows of small whole runs on a user's own file, and the content of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests import tiny

SMALL = (
    "limit=smoke", "limit.documents=60", "limit.repeats=1", "tasks.max_length=32", "output=out",
    "target.speedup=1.01", "target.shape=[1,16]", "target.scheme=fp32", "stages.prune.dimensions=[layers]",
    "stages.quantize.schemes=[onnxruntime]",
    "stages.quantize.max_drop=100", "stages.evaluate.shapes=[[1,16]]",
    "stages.evaluate.baseline=null", "pipeline=[finetune_teacher,prune,recover,quantize,evaluate,export]",
)  # fmt: skip
FLOAT = (
    "pipeline=[finetune_teacher,prune,recover,evaluate,export]", "stages.evaluate.quantized=null",
    "stages.export.quantized=null",
)  # fmt: skip
"""Settings after `SMALL` of a run that quantizes nothing."""


def judged(number: int) -> dict[str, Any]:
    """A query and a document, of 64, and whether they are one sentence."""
    query, document = tiny.SENTENCES[number // 8], tiny.SENTENCES[number % 8]
    return {"query": f"{query} {number // 8}", "document": document, "relevance": int(query == document)}


def given(home: Path) -> Path:
    """A teacher of two layers, because exporting a graph takes a second or more for each. A random one has four."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    return tiny.save(home / "given", "bert", "", **sizes)


def content(folder: Path) -> dict[str, bytes]:
    """Path -> content of every file below a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
