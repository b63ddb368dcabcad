"""The models that the user gives: teachers and optionally a student, with their tokenizers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distill.config import NO_TEACHER, Config, Teacher
from distill.config.plan import STATIC
from distill.data.encode import PAIR_SEPARATOR, separates
from distill.models import families, student, teacher
from distill.models.families.head import stored_head
from distill.pipeline.context.fingerprints import of_corpus, of_models
from distill.runtime.machine import Machine
from distill.runtime.storage import atomic, run_folder

SMOKE_LAYERS = 4
"""Number of layers of the random teacher under limit=smoke, unless the student needs more."""

HEADLESS = "headless"
"""Folder below the run folder with the given teachers, with `teacher.head=new`."""


@dataclass(frozen=True)
class GivenModels:
    """Folders and tokenizers of the given models.

    A model is fetched, or under limit=smoke created at random, on first use. Every process must use them in the same
    order, because the processes wait for each other.
    """

    config: Config
    machine: Machine
    folder: Path
    """The run folder, where random models are written."""
    texts: Callable[[], Iterable[str]]
    """Returns the documents of the corpus, from which the tokenizers of random models are built."""
    student_given: bool

    @property
    def key(self) -> str:
        """The setting that names the teachers or, without a teacher, the model in their place."""
        return {"ensemble": "teacher.names", NO_TEACHER: "student.name"}.get(self.config.teacher.kind, "teacher.name")

    @property
    def teacher(self) -> str:
        """Folder of the teacher, or of the first one of an ensemble."""
        return self.teachers[0]

    @functools.cached_property
    def teachers(self) -> list[str]:
        """Folders of the teachers: one, or all of an ensemble."""
        settings = self.config.teacher
        if settings.kind != "ensemble":
            return [self._teacher(settings, 0)]
        names: list[str | None] = [*settings.names] or [None, None]  # under limit=smoke
        return [self._teacher(replace(settings, kind="hub", name=name), number) for number, name in enumerate(names)]

    def _teacher(self, settings: Teacher, number: int) -> str:
        """Folder of one teacher. `number`: its index in an ensemble, whose random members differ in depth."""
        local = settings.name is not None and Path(settings.name).is_dir()
        if settings.kind == "random" or (self.config.limit.smoke and not local):
            return self._random("teacher", max(SMOKE_LAYERS, self._layers) + number, self.key, settings.name)
        with self.machine.main_first():
            folder = teacher.resolve(settings, self.key)
            if settings.head == "given":
                return folder
            return teacher.without_head(folder, self.folder / HEADLESS / str(number + 1), of_models([folder]))

    @functools.cached_property
    def student(self) -> str:
        """Folder of the given student."""
        layers = max(SMOKE_LAYERS // 2, self._layers)
        return self._fetched(self.config.student.name, "student.name", "student", layers)

    def _fetched(self, name: str | None, key: str, role: str, layers: int) -> str:
        """Folder of the model `name` of the setting `key`; under limit=smoke, a random one in place of a download."""
        if self.config.limit.smoke and not (name is not None and Path(name).is_dir()):
            return self._random(role, layers, key, name)
        with self.machine.main_first():
            return teacher.fetch(name, key)

    @property
    def _layers(self) -> int:
        """Number of layers that the settings of the student need."""
        return max(1 + max(self.config.student.layers or [-1]), self.config.student.num_hidden_layers or 0)

    def _random(self, role: str, layers: int, key: str, name: str | None) -> str:
        """Folder of a tiny random model in place of the model `name` of the setting `key`. It is wider than the student
        of the settings, and has as many heads, because some terms compare them one by one."""
        if name is not None:
            self.machine.log(
                f"{key}: {name} is not a local folder; limit=smoke downloads nothing and uses a random model"
            )
        folder, student = self.folder / f"random_{role}_{layers}", self.config.student
        hidden = 2 * max(16, student.hidden_size or 0, student.embedding_size or 0)
        ffn = 2 * max(36, student.intermediate_size or 0)
        heads = student.num_attention_heads
        heads = None if heads is None or hidden % heads else heads
        with self.machine.main_first():
            # The words of the corpus are its vocabulary. A refused run with other settings may have made others.
            made_from = {"corpus": of_corpus(self.config.corpus), "sizes": [hidden, ffn, heads]}
            file = folder / run_folder.MANIFEST
            if not (file.is_file() and atomic.read_json(file) == made_from):
                teacher.random_teacher(folder, layers, self.texts(), hidden, ffn, heads)
                atomic.write_json(file, made_from)
        return str(folder)

    def is_random(self, folder: str) -> bool:
        """Whether a folder holds a random model of this run."""
        return Path(folder).parent == self.folder

    @property
    def tokenizer(self) -> Any:
        """Tokenizer of the teacher, or of the first one of an ensemble."""
        return self.tokenizers[0]

    @functools.cached_property
    def tokenizers(self) -> list[Any]:
        """Tokenizer of each teacher, which pads on the side that the model's family needs, whatever was stored."""
        loaded = [teacher.load_tokenizer(folder) for folder in self.teachers]
        for tokenizer, folder in zip(loaded, self.teachers, strict=True):
            left = families.family_of(teacher.read_config(folder, self.key)).pads_left
            tokenizer.padding_side = "left" if left else "right"
            if not separates(tokenizer) and stored_head(folder) is None:
                tokenizer.init_kwargs[PAIR_SEPARATOR] = "\n"
        return loaded

    @functools.cached_property
    def masked_lm(self) -> str | None:
        """Folder of the masked language model that replaces words in rows without labels; None without one."""
        name = self.config.transfer.masked_lm
        return None if name is None else self._fetched(name, "transfer.masked_lm", "masked_lm", 1)

    @functools.cached_property
    def tokenizer_folder(self) -> str:
        """Folder of the student's tokenizer: `student.tokenizer`, the given student, or the first teacher."""
        own = self.config.student.tokenizer
        if self.student_given or own is None:
            return self.student if self.student_given else self.teacher
        with self.machine.main_first():
            return teacher.fetch(own, "student.tokenizer", files=teacher.TOKENIZER)

    @functools.cached_property
    def student_tokenizer(self) -> Any:
        """Tokenizer of the student: its own, or the teacher's."""
        static = not self.student_given and self.config.student.init == STATIC
        if not self.student_given and self.config.student.tokenizer is None:
            return student.mean_tokenizer(self.tokenizer) if static else self.tokenizer
        loaded = teacher.load_tokenizer(self.tokenizer_folder)
        loaded.padding_side = "right"
        # As of a teacher without a head: what is trained here tells the texts of a pair apart.
        if not separates(loaded) and (not self.student_given or stored_head(self.student) is None):
            loaded.init_kwargs[PAIR_SEPARATOR] = "\n"
        return student.mean_tokenizer(loaded) if static else loaded
