"""The run folder: paths of each step's models, manifest and temporary files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from distill.compression.pruning.importance import SCORES
from distill.config.plan import Step
from distill.pipeline.artefacts import Artefact, Key, Record, TaskModel
from distill.runtime.storage import atomic, checksums, file_hashes, run_folder, structs
from distill.runtime.storage.run_folder import STATE
from distill.runtime.storage.structs import Stored

CHOICE = "choice.json"
"""File, in the folder of a train step, of the shape that movement gates are trained for, with its measured speed."""
TEACHER_LOGITS = ".targets"
"""Suffix of the folder with a teacher's logits for the training rows of every task."""
MEASURED = ".measured"
"""Suffix of the folder with the measurements of a prune stage, which all its targets share."""
CORPUS = "corpus.tokens"
"""Folder of the encoded corpus."""
TRANSFER = "transfer.rows"
"""Folder of the transfer set of every task."""
BEGUN = ".begun.json"
"""File with what each step is made from, from when a run last started with it pending."""
COSTS = frozenset(("cost", "reused", "seconds", "tokens_per_second", "speed", "log"))
"""Fields with what a step cost and what was measured, which are other numbers when it is made again."""
_VERSIONS = frozenset(("versions", "packages", "arithmetic"))
"""Fields with the code and the arithmetic that ran a step. What they change of its models is in its files."""

A = TypeVar("A", bound=Artefact)


class Recorded(Artefact, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """What is common to the manifests of all kinds of steps."""


class Begun(Stored, frozen=True, kw_only=True):
    """What steps began with."""

    keys: dict[str, Key]
    """By the folder of each step."""
    mixed: tuple[str, ...] = ()
    """Folders of steps that were begun by other code, in another arithmetic or by more or fewer processes than they go
    on with."""


@dataclass(frozen=True)
class RunFolder:
    path: Path

    def check_links(self) -> None:
        """Check that no folder of a step is a symbolic link, before anything is computed that could not be written
        there.

        Raises:
            UserError: for the first of them.
        """
        for parent, folders, _ in os.walk(self.path):
            for name in folders:
                atomic.no_links(Path(parent, name, "file"))

    @property
    def ladder(self) -> Path:
        return self.path / run_folder.LADDER

    @property
    def clock(self) -> Path:
        return self.path / run_folder.CLOCK

    def of(self, step: Step) -> Path:
        """Folder of a step."""
        return self.path / step.folder

    def finished(self, step: Step) -> bool:
        return run_folder.finished(self.of(step))

    def result(self, step: Step, kind: type[A]) -> A:
        """What a step hands over.

        Raises:
            ConfigError: if its manifest is not of this kind.
            FileNotFoundError: if the stage has not handed over anything.
        """
        return structs.read(self.of(step) / run_folder.MANIFEST, kind)

    def model(self, step: Step, task: str) -> TaskModel | None:
        """How a train step made the model of a task; None for several models, and for one with the heads of all."""
        file = self.of(step) / task / run_folder.MANIFEST
        return structs.read(file, TaskModel) if file.is_file() else None

    def record(self, step: Step) -> Record | None:
        """How a step was run; None if it is not finished.

        Raises:
            ConfigError: if its manifest has another record.
        """
        return self.result(step, Recorded).record if self.finished(step) else None

    def inputs(self, step: Step) -> dict[str, str]:
        """Folder -> identity, for every finished step that is an input of the step."""
        return {other.folder: self.identity(other) for other in filter(self.finished, step.inputs)}

    def identity(self, step: Step) -> str:
        """Hash of what a finished step made, and from what. It stays the same if the step is made again bit for bit."""
        content = atomic.read_json(self.of(step) / run_folder.MANIFEST) if self.finished(step) else {}
        return checksums.fingerprint(_without_costs(content))

    def complete(self, step: Step, made: Artefact, record: Record) -> None:
        """Write what a step hands over, by which the step is finished, with the record of how it was run and the hash
        of its files."""
        whole = replace(record, files=checksums.fingerprint(self._files(step)))
        structs.write(self.of(step) / run_folder.MANIFEST, replace(made, record=whole))

    def _files(self, step: Step) -> list[list[str]]:
        """Path and hash of each file that a step made, and of the scores that it measured."""
        measured = self.measured(step) if step.kind == "prune" else None
        scores = [] if measured is None else file_hashes.of_folder(measured)
        every = [*file_hashes.of_folder(self.of(step)), *(part for part in scores if Path(part[0]).name == SCORES)]
        return [part for part in every if Path(part[0]).name not in (run_folder.MANIFEST, CHOICE)]

    @property
    def begun(self) -> dict[str, Key]:
        """What was stored by `begin` when a run last started with a step pending, by the folder of the step."""
        return self._begun.keys

    @property
    def _begun(self) -> Begun:
        file = self.path / BEGUN
        return structs.read(file, Begun) if file.is_file() else Begun(keys={})

    def begin(self, keys: dict[str, Key], steps: Sequence[Step]) -> None:
        """Store what pending steps are made from, by the folder of each, and what manifests say of finished `steps`
        whose entry is lost."""
        before = self._begun
        known = before.keys
        records = {step.folder: self.record(step) for step in steps if step.folder not in known}
        lost = {name: replace(made.key, settings=None) for name, made in records.items() if made}
        mixed = tuple(step.folder for step in steps if self._goes_on_otherwise(step, known, keys))
        if (now := Begun(keys=known | lost | keys, mixed=mixed)) != before:
            structs.write(self.path / BEGUN, now)

    def _goes_on_otherwise(self, step: Step, known: Mapping[str, Key], keys: Mapping[str, Key]) -> bool:
        """Whether a pending step has files, or would read some, that other code, or another arithmetic, made."""
        if (key := keys.get(step.folder)) is None or not self._goes_on(step):
            return False
        before = known.get(step.folder, key)
        computed = before.arithmetic in (None, key.arithmetic)
        return self.mixed(step) or before.packages != key.packages or not computed

    def mixed(self, step: Step) -> bool:
        """Whether a step was begun by other code, in another arithmetic or by more or fewer processes. Its models are
        not kept for other runs."""
        return step.folder in self._begun.mixed and self._goes_on(step)

    def _goes_on(self, step: Step) -> bool:
        """Whether there are files of a step besides measurements or, where it reads them, an encoded corpus or transfer
        sets."""
        reads = {CORPUS: step.on_corpus, TRANSFER: getattr(step.settings, "transfer", False)}
        return self.has_parts(step) or any(used and (self.path / name).exists() for name, used in reads.items())

    def teacher_logits(self, name: str) -> Path:
        """Folder of teacher logits. `name`: the teacher step's folder, or the name of the given model."""
        return self.path / f"{name}{TEACHER_LOGITS}"

    def times(self, step: Step) -> Path:
        """Folder of the times that a prune stage measured, which all its targets share."""
        return self.path / f"{step.stage}{MEASURED}"

    def measured(self, step: Step) -> Path:
        """Folder of the other measurements of a prune step, which targets share if they prune the same models."""
        start = step.source("start")
        alone = step.cutter is step and isinstance(start, Step) and start.target
        return self.path / f"{step.folder}{MEASURED}" if alone else self.times(step)

    def started(self, step: Step) -> bool:
        """Whether there are files of a step."""
        return self.has_parts(step) or self.measured(step).exists()

    def has_parts(self, step: Step) -> bool:
        """Whether there are files of a step besides measurements, which steps share."""
        return any((self.path / f"{step.folder}{ending}").exists() for ending in ("", STATE))

    def forget(self, step: Step) -> None:
        """Remove all files of a step, the measurements of its stage, and the decisions that depend on them."""
        for ending in ("", STATE, TEACHER_LOGITS):
            atomic.remove(self.path / f"{step.folder}{ending}", self.path)
        atomic.remove(self.measured(step), self.path)
        if step.first_pruner is step:
            atomic.remove(self.ladder, self.path)

    def forget_corpus(self) -> None:
        """Remove the encoded corpus."""
        atomic.remove(self.path / CORPUS, self.path)

    def forget_given(self) -> None:
        """Remove data computed from given models and data for several steps: the encoded corpus, transfer sets and
        teachers' logits."""
        self.forget_corpus()
        atomic.remove(self.path / TRANSFER, self.path)
        # The files of a step with a target are one level deeper.
        for pattern in (f"*{TEACHER_LOGITS}", f"*/*{TEACHER_LOGITS}"):
            for folder in self.path.glob(pattern):
                atomic.remove(folder, self.path)


def _without_costs(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_costs(each) for key, each in value.items() if key not in COSTS | _VERSIONS}
    return [_without_costs(each) for each in value] if isinstance(value, list) else value
