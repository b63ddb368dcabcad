"""What every stage of a run shares: settings, folders, data, devices. Each is made when first asked for."""

from __future__ import annotations

import copy
import functools
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from rich.console import Console

from distill import checkpoint, family, teacher
from distill.config import Config, Stage, Teacher, Train, fingerprint
from distill.data import align, corpus, encode, tasks
from distill.errors import UserError
from distill.plan import cut_by, given_student, of_student, references

SMOKE_LAYERS = 4

APART = 10
"""With learned weights, one training row in so many is kept for them."""

TARGETS = ".targets"
"""Ending of the folder, in the run folder, with the logits of a stage's models for the training rows of every task."""

CORPUS = "corpus.tokens"
"""Folder, in the run folder, of the encoded corpus."""


@dataclass(frozen=True)
class Context:
    """One run. `recipe` is its name, `command` how it was called, `folder` where everything of it lies."""

    config: Config
    recipe: str
    command: str
    folder: Path
    accelerator: Accelerator
    console: Console
    precision: str
    threads: int
    fast_float32: bool
    """Whether torch's fast float32 matrix product is real float32 here."""
    _cut: dict[str, Any] = field(default_factory=dict)
    """Vocabulary stage -> its tokenizer, once asked for."""

    def say(self, text: str) -> None:
        if self.accelerator.is_main_process:
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """The main process does it first; the others then find it done."""
        if not self.accelerator.is_main_process:
            self.accelerator.wait_for_everyone()
        yield
        if self.accelerator.is_main_process:
            self.accelerator.wait_for_everyone()

    def inputs(self, stage: Stage) -> dict[str, str]:
        """Fingerprint of every stage that a stage is made from."""
        files = {name: self.folder / name / checkpoint.MANIFEST for name in references(self.config, stage)}
        return {name: fingerprint(checkpoint.read_json(file)) for name, file in files.items() if file.is_file()}

    def checkpoint(self, stage: str, task: str | None = None) -> Path:
        """Model folder that a finished stage left, for a task if there is one for each, or a model as given.

        The first one where the stage left a model for each teacher of an ensemble.
        """
        return self.checkpoints(stage, task)[0]

    def checkpoints(self, stage: str, task: str | None = None) -> list[Path]:
        """As `checkpoint`: that of each teacher, in their order."""
        if stage in ("teacher", "student"):
            return [Path(name) for name in (self.teachers if stage == "teacher" else [self.student])]
        manifest = checkpoint.read_json(self.folder / stage / checkpoint.MANIFEST)
        parts = [f"{stage}/{member}" for member in manifest.get("members", [])] or [stage]
        return [self._left(name, number, task) for number, name in enumerate(parts)]

    def _left(self, name: str, number: int, task: str | None) -> Path:
        """What a stage, or its part for one teacher, left."""
        folder = self.folder / name
        manifest = checkpoint.read_json(folder / checkpoint.MANIFEST)
        if "same_as" in manifest:
            return self.checkpoints(manifest["same_as"], task)[number]
        return folder / task if task is not None and (folder / task).is_dir() else folder

    def weights(self, stage: str, task: str | None = None) -> list[float]:
        """Share of each teacher that a stage left, in what they say together of a task."""
        if len(self.checkpoints(stage, task)) == 1:
            return [1.0]
        manifest = {} if stage == "teacher" else checkpoint.read_json(self.folder / stage / checkpoint.MANIFEST)
        given = self.config.teacher.weights
        equal = [1.0] * len(self.teachers)
        learned: list[float] | None = manifest.get("weights", {}).get(task)
        return learned or (equal if given in (None, "learned") else list(given))

    @functools.cached_property
    def tasks(self) -> tuple[dict[str, tasks.TaskData], list[dict[str, Any]]]:
        with self.main_first():
            return tasks.load_tasks(self.config.tasks, self.config.limit, self.config.seed)

    @functools.cached_property
    def texts(self) -> tuple[Sequence[str], dict[str, Any]]:
        """Documents of the corpus, and where they come from. Only the main process reads them."""
        return corpus.load_corpus(self.config.corpus, self.config.limit, self.config.seed)

    def corpus(self, stage: str) -> tuple[encode.Encoded | align.Aligned, dict[str, Any]]:
        """As many tokens as the longest stage can use, in the tokens this stage needs, and where they come from.

        Encoded once for all stages and processes, and kept on disk until the run is done.
        """
        mine, tokenizer = self.tokenizer_of(stage)
        # The baseline, which has no teacher, gets the student's texts too, cut where the student's are.
        aligned = mine == "student"
        folder = self.folder / CORPUS / mine
        with self.main_first():
            if not checkpoint.finished(folder):
                texts, source = self.texts
                self.say(f"corpus: {len(texts)} documents, in the {mine}'s tokens")
                sizes = (self.config.corpus.max_length, self._corpus_tokens())
                with checkpoint.writing(folder) as temporary:
                    if aligned:
                        tokens = align.encode_aligned(temporary, texts, tokenizer, self.tokenizer, *sizes)
                    else:
                        tokens = encode.encode_corpus(temporary, texts, tokenizer, *sizes)
                    if not tokens:
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

    @property
    def teacher_key(self) -> str:
        """The setting that names the teachers."""
        return "teacher.names" if self.config.teacher.kind == "ensemble" else "teacher.name"

    @property
    def teacher(self) -> str:
        """Folder of the teacher as given; of the first of an ensemble."""
        return self.teachers[0]

    @functools.cached_property
    def teachers(self) -> list[str]:
        """Folder of the teacher as given, or of each of an ensemble."""
        given = self.config.teacher
        if given.kind != "ensemble":
            return [self._teacher(given, 0)]
        names: list[str | None] = [*given.names] or [None, None]  # under limit=smoke
        return [self._teacher(replace(given, kind="hub", name=name), more) for more, name in enumerate(names)]

    def _teacher(self, given: Teacher, more: int) -> str:
        """Folder of one teacher. Those that stand in for an ensemble's have `more` layers."""
        local = given.kind == "hub" and given.name is not None and Path(given.name).is_dir()
        if given.kind == "random" or (self.config.limit.smoke and not local):
            wanted = self.config.student
            fewest = max(SMOKE_LAYERS, 1 + max(wanted.layers or [0]), wanted.num_hidden_layers or 0)
            return self._random("teacher", fewest + more)
        with self.main_first():
            return teacher.resolve(given, self.teacher_key)

    @functools.cached_property
    def student(self) -> str:
        """Folder of the student, where one is given."""
        name = self.config.student.name
        if self.config.limit.smoke and not (name is not None and Path(name).is_dir()):
            return self._random("student", SMOKE_LAYERS // 2)
        with self.main_first():
            return teacher.fetch(name, "student.name")

    def _random(self, what: str, layers: int) -> str:
        """Folder of a tiny random model, wide enough for the student that is wanted."""
        folder, wanted = self.folder / f"random_{what}_{layers}", self.config.student
        hidden = 2 * max(16, wanted.hidden_size or 0, wanted.embedding_size or 0)
        ffn = 2 * max(32, wanted.intermediate_size or 0)
        with self.main_first():
            if not (folder / "config.json").is_file():
                teacher.random_teacher(folder, layers, self.texts[0], hidden, ffn)
        return str(folder)

    @property
    def tokenizer(self) -> Any:
        """The teacher's; the first one's of an ensemble."""
        return self.tokenizers[0]

    @functools.cached_property
    def tokenizers(self) -> list[Any]:
        """Each teacher's. They pad where the family can have it, whatever was stored."""
        loaded = [teacher.load_tokenizer(folder) for folder in self.teachers]
        for tokenizer, folder in zip(loaded, self.teachers, strict=True):
            left = family.family_of(teacher.read_config(folder, self.teacher_key)).pads_left
            tokenizer.padding_side = "left" if left else "right"
        return loaded

    @functools.cached_property
    def student_tokenizer(self) -> Any:
        """The student's own, or the teacher's."""
        if not given_student(self.config) and self.config.student.tokenizer is None:
            return self.tokenizer
        if given_student(self.config):
            folder = self.student
        else:
            with self.main_first():
                folder = teacher.fetch(self.config.student.tokenizer, "student.tokenizer", files=teacher.TOKENIZER)
        loaded = teacher.load_tokenizer(folder)
        loaded.padding_side = "right"
        return loaded

    def tokenizer_of(self, stage: str) -> tuple[str, Any]:
        """Whose tokenizer the models of a stage read, and that tokenizer: the teacher's, the student's or a cut one."""
        if (cut := cut_by(self.config, stage)) is not None:
            return "cut", self._cut_tokenizer(cut)
        own = self.config.student.tokenizer is not None or given_student(self.config)
        return (
            ("student", self.student_tokenizer)
            if own and of_student(self.config, stage)
            else ("teacher", self.tokenizer)
        )

    @property
    def every_tokenizer(self) -> list[Any]:
        """Those that models of this run read with: each teacher's, the student's, and those that stages have cut."""
        cut = [self._cut_tokenizer(name) for name in self.config.pipeline if cut_by(self.config, name) == name]
        return [*self.tokenizers, self.student_tokenizer, *cut]

    def _cut_tokenizer(self, stage: str) -> Any:
        if stage not in self._cut:
            _, whole = self.tokenizer_of(self.config.stages[stage].start)  # type: ignore[attr-defined]
            self._cut[stage] = teacher.load_tokenizer(self.folder / stage / next(iter(self.tasks[0])))
            self._cut[stage].padding_side = whole.padding_side
        return self._cut[stage]

    @contextmanager
    def writing(self, folder: Path, model: Any, tokenizer: Any, manifest: dict[str, Any]) -> Iterator[Path]:
        """A model folder that any transformers loads, with the tokenizer and the manifest, whole or not there."""
        tokenizer = copy.copy(tokenizer)
        # It then makes just the inputs the model was trained on.
        tokenizer.model_input_names = list(family.input_names(model.config))
        with checkpoint.writing(folder) as temporary:
            model.save_pretrained(temporary)
            if family.family_of(model).layer is None:
                _keep_labels(temporary / "config.json", model.config)
            tokenizer.save_pretrained(temporary)
            yield temporary
            checkpoint.write_json(temporary / checkpoint.MANIFEST, manifest)


def _keep_labels(file: Path, config: Any) -> None:
    """Two labels are left out of a config as if they were everyone's default: BART's is three."""
    stored = checkpoint.read_json(file)
    if "id2label" not in stored and config.num_labels == 2:
        names = {"id2label": config.id2label, "label2id": config.label2id}
        checkpoint.write_json(file, stored | names)


def drop(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def detect_precision(setting: str, device: torch.device) -> str:
    """bf16 where the hardware multiplies it fast, else fp32."""
    if setting != "auto":
        return setting
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    capabilities = torch.cpu.get_capabilities()
    return "bf16" if capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") else "fp32"


def cores() -> int:
    """CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
