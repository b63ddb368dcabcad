"""The models that a step reads: the model folders of a finished step, or of given models, with their tokenizers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

WHOLE = ""
"""Name, beside these of the tasks, under which a model stands that belongs to no task."""


@dataclass(frozen=True)
class Checkpoints:
    name: str
    """Folder of the step, relative to the run folder, or the name of the given model: `teacher` or `student`."""
    folders: dict[str, list[Path]]
    """Task -> the folder of its model; several for an ensemble. `WHOLE` -> these of a model of the corpus, or the
    folders in which the models of the tasks are."""
    weights: dict[str, list[float]]
    """Task, or `WHOLE` -> the weight of each folder in the mean of their probabilities, or of their cosines."""
    tokenizers: list[Any]
    """Tokenizer of each model of an ensemble, or of the one model."""

    def folder(self, task: str = WHOLE, member: int = 0) -> Path:
        """Folder of the model of a task, or of the one model of the corpus. `member`: index of the teacher in an
        ensemble."""
        return self.folders[task if self.folders.keys() - {WHOLE} else WHOLE][member]

    @property
    def tokenizer(self) -> Any:
        """Tokenizer of the model, or of the first one of an ensemble."""
        return self.tokenizers[0]
