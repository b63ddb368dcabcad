"""The models that a run is given: teachers and perhaps a student, with their tokenizers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distill import family, teacher
from distill.config import Config, Teacher
from distill.machine import Machine

SMOKE_LAYERS = 4
"""Layers of the random teacher under limit=smoke, unless the student needs more."""


@dataclass(frozen=True)
class GivenModels:
    """Each is fetched, or drawn under limit=smoke, when it is first asked for; on every process, in the same order."""

    config: Config
    machine: Machine
    folder: Path
    """That of the run, where random models are written."""
    texts: Callable[[], Iterable[str]]
    """Documents of the corpus, which the tokenizers of random models are made from."""
    student_given: bool
    """Whether the student is a pretrained one."""

    @property
    def key(self) -> str:
        """The setting that names the teachers."""
        return "teacher.names" if self.config.teacher.kind == "ensemble" else "teacher.name"

    @property
    def teacher(self) -> str:
        """Folder of the teacher; of the first of an ensemble."""
        return self.teachers[0]

    @functools.cached_property
    def teachers(self) -> list[str]:
        """Folder of the teacher, or of each of an ensemble."""
        given = self.config.teacher
        if given.kind != "ensemble":
            return [self._teacher(given, 0)]
        names: list[str | None] = [*given.names] or [None, None]  # under limit=smoke
        return [self._teacher(replace(given, kind="hub", name=name), more) for more, name in enumerate(names)]

    def _teacher(self, given: Teacher, more: int) -> str:
        """Folder of one teacher. Random ones in place of an ensemble's have `more` layers."""
        local = given.kind == "hub" and given.name is not None and Path(given.name).is_dir()
        if given.kind == "random" or (self.config.limit.smoke and not local):
            self._say_random(self.key, given.name)
            wanted = self.config.student
            fewest = max(SMOKE_LAYERS, 1 + max(wanted.layers or [0]), wanted.num_hidden_layers or 0)
            return self._random("teacher", fewest + more)
        with self.machine.main_first():
            return teacher.resolve(given, self.key)

    @functools.cached_property
    def student(self) -> str:
        """Folder of the student, where one is given."""
        name = self.config.student.name
        if self.config.limit.smoke and not (name is not None and Path(name).is_dir()):
            self._say_random("student.name", name)
            return self._random("student", SMOKE_LAYERS // 2)
        with self.machine.main_first():
            return teacher.fetch(name, "student.name")

    def _say_random(self, key: str, name: str | None) -> None:
        if name is not None:
            self.machine.say(f"{key}: {name} is no folder here; limit=smoke downloads nothing and uses a random model")

    def _random(self, role: str, layers: int) -> str:
        """Folder of a tiny random model, wide enough for the student that is wanted."""
        folder, wanted = self.folder / f"random_{role}_{layers}", self.config.student
        hidden = 2 * max(16, wanted.hidden_size or 0, wanted.embedding_size or 0)
        ffn = 2 * max(32, wanted.intermediate_size or 0)
        with self.machine.main_first():
            if not (folder / "config.json").is_file():
                teacher.random_teacher(folder, layers, self.texts(), hidden, ffn)
        return str(folder)

    def is_random(self, folder: str) -> bool:
        """Whether a model's folder is one that was drawn here."""
        return Path(folder).parent == self.folder

    @property
    def tokenizer(self) -> Any:
        """The teacher's; the first one's of an ensemble."""
        return self.tokenizers[0]

    @functools.cached_property
    def tokenizers(self) -> list[Any]:
        """Each teacher's. They pad on the side that the family needs, whatever was stored."""
        loaded = [teacher.load_tokenizer(folder) for folder in self.teachers]
        for tokenizer, folder in zip(loaded, self.teachers, strict=True):
            left = family.family_of(teacher.read_config(folder, self.key)).pads_left
            tokenizer.padding_side = "left" if left else "right"
        return loaded

    @functools.cached_property
    def tokenizer_folder(self) -> str:
        """Folder of the student's own tokenizer; of the student, or the first teacher, where it has none."""
        own = self.config.student.tokenizer
        if self.student_given or own is None:
            return self.student if self.student_given else self.teacher
        with self.machine.main_first():
            return teacher.fetch(own, "student.tokenizer", files=teacher.TOKENIZER)

    @functools.cached_property
    def student_tokenizer(self) -> Any:
        """The student's own, or the teacher's."""
        if not self.student_given and self.config.student.tokenizer is None:
            return self.tokenizer
        loaded = teacher.load_tokenizer(self.tokenizer_folder)
        loaded.padding_side = "right"
        return loaded
