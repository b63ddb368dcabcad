"""The folder of a run: where each step's models, manifest and left-overs are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distill import checkpoint
from distill.plan import Step

STATE = ".state"
"""Ending of the folder of resumable state of what is trained under a name."""
TARGETS = ".targets"
"""Ending of the folder with the logits of a step's models for the training rows of every task."""
MEASURED = ".measured"
"""Ending of the folder with what a prune stage measures, once for all its targets."""
CORPUS = "corpus.tokens"
"""Folder of the encoded corpus."""
BEGUN = ".given.json"
"""File with the fingerprints of what was given, for each step, when the run last began its training."""


@dataclass(frozen=True)
class RunFolder:
    path: Path

    def of(self, step: Step) -> Path:
        return self.path / step.folder

    def finished(self, step: Step) -> bool:
        return checkpoint.finished(self.of(step))

    def manifest(self, step: Step) -> dict[str, Any]:
        """What a finished step wrote down; empty for one that is not finished."""
        read: dict[str, Any] = checkpoint.read_json(self.of(step) / checkpoint.MANIFEST) if self.finished(step) else {}
        return read

    def inputs(self, step: Step) -> dict[str, str]:
        """Fingerprint of every finished step that a step is made from."""
        finished = filter(self.finished, step.inputs)
        return {other.folder: checkpoint.fingerprint(self.manifest(other)) for other in finished}

    def begun(self, step: Step) -> dict[str, str] | None:
        """Fingerprints of what was given when a run with this step to do last began; None where none did."""
        file = self.path / BEGUN
        read: dict[str, dict[str, str]] = checkpoint.read_json(file) if file.is_file() else {}
        return read.get(step.folder)

    def begin(self, given: dict[str, dict[str, str]]) -> None:
        """Keep the fingerprints of what was given, by the folder of each step that is to be done."""
        checkpoint.write_json(self.path / BEGUN, given)

    def targets(self, name: str) -> Path:
        """Folder of the logits that the models of a step, by its folder's name, or given models output for tasks."""
        return self.path / f"{name}{TARGETS}"

    def measured(self, step: Step) -> Path:
        """Folder of what a prune stage measures."""
        return self.path / f"{step.stage}{MEASURED}"

    def forget(self, step: Step) -> None:
        """Remove all that a step wrote, and what was measured for it."""
        for ending in ("", STATE, TARGETS):
            checkpoint.remove(self.path / f"{step.folder}{ending}", self.path)
        checkpoint.remove(self.measured(step), self.path)

    def forget_corpus(self) -> None:
        """Remove the encoded corpus."""
        checkpoint.remove(self.path / CORPUS, self.path)

    def forget_given(self) -> None:
        """Remove what was computed from what was given, for several steps: the encoded corpus and teachers' logits."""
        self.forget_corpus()
        for folder in self.path.rglob(f"*{TARGETS}"):
            checkpoint.remove(folder, self.path)

    def finish(self) -> None:
        """Remove what only a run that is not finished needs."""
        self.forget_given()
        checkpoint.remove(self.path / BEGUN, self.path)
