"""The stages, one file for each kind. A stage loads checkpoint folders and writes one, its manifest last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distill.pipeline.stages import evaluate, export, prune, quantize, train, vocabulary
from distill.runtime import outside

RUN: dict[str, Callable[..., dict[str, Any]]] = {
    "train": train.run,
    "prune": prune.run,
    "vocabulary": vocabulary.run,
    "quantize": quantize.run,
    "evaluate": evaluate.run,
    "export": export.run,
}
"""Kind of a stage -> `run(context, step) -> manifest`."""
outside.registry("stages", RUN)
