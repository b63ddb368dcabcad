"""What the stages of a run share: the machine, the run folder, what was given, the tasks and the encoded corpus."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distill import checkpoint, teacher
from distill.config import Config, Train
from distill.context import fingerprints
from distill.context.folder import CORPUS, RunFolder
from distill.context.given import GivenModels
from distill.data import align, corpus, encode
from distill.data.tasks import TaskData, load_tasks
from distill.errors import UserError
from distill.machine import Machine
from distill.plan import STUDENT, TEACHER, Given, Plan, Source, Step, tokenizer_of


@dataclass(frozen=True)
class Context:
    """One run. `recipe` is its name and `command` how it was called."""

    config: Config
    plan: Plan
    recipe: str
    command: str
    machine: Machine
    folder: RunFolder
    _fingerprints: dict[str, str] = field(default_factory=dict)
    """What is given -> its fingerprint, once it was asked for."""
    _cut: dict[Step, Any] = field(default_factory=dict)
    """Vocabulary step -> its tokenizer, once it was asked for."""

    @functools.cached_property
    def given(self) -> GivenModels:
        return GivenModels(self.config, self.machine, self.folder.path, lambda: self.texts[0], self.plan.given_student)

    def fingerprints(self, step: Step) -> dict[str, str]:
        """Fingerprints of what a step itself reads of what was given."""
        names = fingerprints.needed(step, self.config.student.tokenizer is not None)
        for name in names:
            if name not in self._fingerprints:
                self._fingerprints[name] = self._fingerprint(name)
        return {name: self._fingerprints[name] for name in names}

    def _fingerprint(self, name: str) -> str:
        if name == "tasks":
            return fingerprints.of_tasks(self.tasks)
        hashes, given = fingerprints.Hashes(self.folder.path, self.machine.main), self.given
        if name == "corpus":
            return hashes.of_corpus(self.config.corpus)
        folders = {"teacher": lambda: given.teachers, "student": lambda: [given.student]}
        return hashes.of_models(folders.get(name, lambda: [given.tokenizer_folder])())

    @functools.cached_property
    def tasks(self) -> dict[str, TaskData]:
        """Name -> rows of every task, in order."""
        return self._loaded[0]

    @property
    def coverage(self) -> list[dict[str, Any]]:
        """A row for each split of each task: how many of its official rows there are."""
        return self._loaded[1]

    @functools.cached_property
    def _loaded(self) -> tuple[dict[str, TaskData], list[dict[str, Any]]]:
        with self.machine.main_first():
            return load_tasks(self.config.tasks, self.config.limit, self.config.seed)

    @functools.cached_property
    def texts(self) -> tuple[Sequence[str], dict[str, Any]]:
        """Documents of the corpus, and where they come from. Only the main process reads them."""
        return corpus.load_corpus(self.config.corpus, self.config.limit, self.config.seed)

    def corpus(self, step: Step) -> tuple[encode.Encoded | align.Aligned, dict[str, Any]]:
        """The corpus in the tokens that a step needs, no longer than the longest stage uses, and where it comes from.

        Encoded once for all stages and processes, and kept on disk until the run is finished.
        """
        # A baseline, which has no teacher, gets the student's texts too, cut where the student's are.
        aligned = step.tokenizer is STUDENT
        whose = "student" if aligned else "teacher"
        folder = self.folder.path / CORPUS / whose
        with self.machine.main_first():
            if not checkpoint.finished(folder):
                texts, source = self.texts
                self.machine.say(f"corpus: {len(texts)} documents, in the {whose}'s tokens")
                sizes = (self.config.corpus.max_length, self._corpus_tokens())
                tokenizer = self.tokenizer(step)
                with checkpoint.writing(folder) as temporary:
                    if aligned:
                        count = align.encode_aligned(temporary, texts, tokenizer, self.given.tokenizer, *sizes)
                    else:
                        count = encode.encode_corpus(temporary, texts, tokenizer, *sizes)
                    if not count:
                        raise UserError(
                            f"corpus.path: got no sequence of {encode.SHORTEST} tokens or more; must hold prose; "
                            "choose another corpus"
                        )
                    checkpoint.write_json(temporary / checkpoint.MANIFEST, source)
        stored = align.stored_aligned if aligned else encode.stored_corpus
        return stored(folder), checkpoint.read_json(folder / checkpoint.MANIFEST)

    def _corpus_tokens(self) -> int | None:
        stages = [s for s in self.config.stages.values() if isinstance(s, Train) and s.data == "corpus"]
        most = [s.steps * s.batch.tokens if s.steps else None for s in stages]
        if self.config.limit.steps:
            most = [self.config.limit.steps * s.batch.tokens for s in stages]
        return None if None in most else max(m for m in most if m is not None)

    def checkpoint(self, source: Source, task: str | None = None) -> Path:
        """Model folder that a finished step left, for a task if there is one for each, or a given model's.

        The first one where the step left a model for each teacher of an ensemble.
        """
        return self.checkpoints(source, task)[0]

    def checkpoints(self, source: Source, task: str | None = None) -> list[Path]:
        """As `checkpoint`: that of each teacher, in their order."""
        if isinstance(source, Given):
            return [Path(name) for name in (self.given.teachers if source is TEACHER else [self.given.student])]
        folder, members = self.folder.of(source), self.folder.manifest(source).get("members", [])
        parts = [folder / member for member in members] or [folder]
        return [self._left(source, part, number, task) for number, part in enumerate(parts)]

    def _left(self, step: Step, folder: Path, number: int, task: str | None) -> Path:
        """The model folder of a step, or of its part for one teacher; of a step that was skipped, where it starts."""
        if "skipped" in checkpoint.read_json(folder / checkpoint.MANIFEST):
            return self.checkpoints(step.start, task)[number]
        return folder / task if task is not None and (folder / task).is_dir() else folder

    def shares(self, source: Source, task: str | None = None) -> list[float]:
        """Weight of each teacher that a step left, in the mean of their probabilities for a task."""
        if len(self.checkpoints(source, task)) == 1:
            return [1.0]
        manifest = self.folder.manifest(source) if isinstance(source, Step) else {}
        learned: list[float] | None = manifest.get("weights", {}).get(task)
        given = self.config.teacher.weights
        equal = [1.0] * len(self.given.teachers)
        return learned or (equal if given in (None, "learned") else list(given))

    def tokenizer(self, source: Source, member: int = 0) -> Any:
        """The tokenizer that the models of a step read with; `member` counts the teachers of an ensemble."""
        whose = tokenizer_of(source)
        if isinstance(whose, Step):
            return self._cut_tokenizer(whose)
        return self.given.student_tokenizer if whose is STUDENT else self.given.tokenizers[member]

    @property
    def every_tokenizer(self) -> list[Any]:
        """Those that models of this run read with: each teacher's, the student's, and those of vocabulary steps."""
        cut = dict.fromkeys(step.tokenizer for step in self.plan.steps if isinstance(step.tokenizer, Step))
        return [*self.given.tokenizers, self.given.student_tokenizer, *map(self.tokenizer, cut)]

    def _cut_tokenizer(self, step: Step) -> Any:
        if step not in self._cut:
            self._cut[step] = teacher.load_tokenizer(self.folder.of(step) / next(iter(self.tasks)))
            self._cut[step].padding_side = self.tokenizer(step.start).padding_side
        return self._cut[step]
