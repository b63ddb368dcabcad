"""The stages, one file for each kind. A stage loads checkpoint folders, writes one, and returns what it hands over."""

from __future__ import annotations

from collections.abc import Callable

from distill.config.plan import Step
from distill.pipeline.artefacts import Artefact
from distill.pipeline.context import Context
from distill.pipeline.stages import evaluate, export, prune, quantize, train, vocabulary
from distill.runtime import outside

RUN: dict[str, Callable[[Context, Step], Artefact]] = {
    "train": train.run,
    "prune": prune.run,
    "vocabulary": vocabulary.run,
    "quantize": quantize.run,
    "evaluate": evaluate.run,
    "export": export.run,
}
"""Kind of a stage -> `run(context, step)`, which returns what the stage hands over. The run writes that to
`manifest.json` in the folder of the step. A kind from outside has a subclass of `Artefact` of its own."""
outside.registry("stages", RUN)
