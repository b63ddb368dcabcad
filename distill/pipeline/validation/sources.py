"""Checks of the settings that choose teacher, corpus, tasks and transfer sets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from distill.config import NO_TEACHER, TRACKERS, TRANSFER_SOURCES, Config
from distill.config.plan import resolve
from distill.data.task import chosen
from distill.errors import Line, Problem
from distill.pipeline.validation.rules import existing
from distill.pipeline.validation.system import system_files
from distill.pipeline.validation.tasks import tasks
from distill.runtime import quoting
from distill.runtime.storage.run_folder import is_path


def sources(config: Config) -> Iterator[Line]:
    """Problems of the settings that choose teacher, corpus and tasks."""
    teacher, corpus = config.teacher, config.corpus
    if teacher.kind == "hub" and not teacher.name:
        yield Problem("teacher.name", "nothing", "be a hub name or a folder", "set teacher.name=FOLDER")
    if teacher.kind == NO_TEACHER:
        yield from _without_teacher(config)
    yield from _ensemble(config)
    yield from _model_folders(config)
    yield from _tracker(config)
    if corpus.kind in ("parquet", "text"):
        yield from existing("corpus.path", corpus.path, "a file or folder")
        yield from system_files("corpus.path", corpus.path)
    if corpus.kind == "hub" and not corpus.name:
        yield Problem(
            "corpus.name", "nothing", "name hub data sets", "e.g. corpus.name=[wikimedia/wikipedia/20231101.en]"
        )
    yield from tasks(config.tasks)
    for name in config.transfer.sources:
        if name not in TRANSFER_SOURCES:
            yield Problem(
                f"transfer.sources.{name}", f"a source {name}", f"be of {', '.join(TRANSFER_SOURCES)}", "correct it"
            )
    yield from system_files("transfer.files", config.transfer.files)


def _without_teacher(config: Config) -> Iterator[Line]:
    """A run without a teacher must have a model and soft labels, and no stage on a corpus, whose texts have none."""
    if config.teacher.name is None and not config.limit.smoke:
        yield Problem(
            "student.name",
            "nothing",
            "be the model that is trained on the soft labels with teacher=none, a hub name or a folder",
            "set student.name=FOLDER",
        )
    for name, task in chosen(config.tasks).items():
        if task.soft_label is None:
            yield Problem(
                "tasks.soft_label",
                f"nothing for {name}",
                "be a column of soft labels with teacher=none, where soft labels stand in for a teacher",
                "set tasks.soft_label=COLUMN, or teacher.name=FOLDER",
            )
    for stage in dict.fromkeys(step.stage for step in resolve(config).steps if step.on_corpus):
        yield Problem(
            "teacher.kind",
            "none",
            f"be another in a recipe that trains on a corpus ({stage}), which has no soft labels",
            "try recipe=prune or recipe=task, or set teacher.name=FOLDER",
        )


def _tracker(config: Config) -> Iterator[Line]:
    name = config.tracker
    if name is not None and name in TRACKERS and find_spec(name) is None:
        yield f"tracker: got {name}; needs its package; run {quoting.install(name)}, or leave it out"


def _model_folders(config: Config) -> Iterator[Line]:
    """Names of models and tokenizers that can only be paths, but are no folders. Under limit=smoke too."""
    models: dict[str, list[str | None]] = {
        "teacher.name": [config.teacher.name],
        "teacher.names": [*config.teacher.names],
        "student.name": [config.student.name],
        "student.tokenizer": [config.student.tokenizer],
        "transfer.masked_lm": [config.transfer.masked_lm],
    }
    for key, names in models.items():
        for name in names:
            if name is not None and is_path(name) and not Path(name).is_dir():
                yield Problem(key, name, "be a folder that exists, or a name on the hub", "check the path")


def _ensemble(config: Config) -> Iterator[Line]:
    """Problems of the settings of several teachers, and of teachers that read windows."""
    teacher = config.teacher
    names, weights = teacher.names, teacher.weights
    if teacher.window is not None and teacher.window >= (longest := config.tasks.max_length):
        must = f"be < tasks.max_length, {longest}, which no text exceeds"
        yield Problem("teacher.window", teacher.window, must, "raise tasks.max_length")
    if teacher.kind != "ensemble":
        return
    if len(names) < 2 and not (config.limit.smoke and not names):
        yield Problem("teacher.names", names, "be two hub names or folders or more", "e.g. teacher.names=[A,B]")
    numbers = isinstance(weights, list) and all(type(w) in (int, float) and 0 < w < math.inf for w in weights)
    if weights is not None and weights != "learned" and not (numbers and len(weights) == len(names)):
        yield Problem(
            "teacher.weights",
            weights,
            "be learned, or a number above 0 for each of teacher.names",
            "null weighs them equally",
        )
