"""The stages, one file for each kind. A stage loads checkpoint folders, writes one, and returns what it hands over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from distill.config.plan import Step
from distill.pipeline.artefacts import Artefact
from distill.pipeline.context import Context
from distill.pipeline.runtime import Runtime
from distill.pipeline.stages import evaluate, export, prune, quantize, train, vocabulary
from distill.runtime import outside


@dataclass(frozen=True)
class Stage:
    """A kind of stage."""

    inputs: Callable[[Context, Step], Any]
    """Returns what the stage reads, when the steps before it are finished."""
    run: Callable[[Any, Any, Runtime], Artefact | None]
    """(inputs, settings, runtime) -> what the stage hands over. The run writes that to `manifest.json` in the folder of
    the step. A kind from outside has a subclass of `Artefact` of its own."""
    everywhere: bool = False
    """Whether every process runs it; else the main one does, while the others sleep. `run` may return None in others
    than the main one."""


STAGES: dict[str, Stage] = {
    "train": Stage(train.inputs, train.run, everywhere=True),
    "prune": Stage(prune.inputs, prune.run),
    "vocabulary": Stage(vocabulary.inputs, vocabulary.run),
    "quantize": Stage(quantize.inputs, quantize.run),
    "evaluate": Stage(evaluate.inputs, evaluate.run, everywhere=True),
    "export": Stage(export.inputs, export.run),
}
"""Kind of a stage -> the stage."""
outside.registry("stages", STAGES)
