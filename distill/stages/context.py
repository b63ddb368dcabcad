"""What every stage of a run shares: settings, folders, data, devices. Each is made when first asked for."""

from __future__ import annotations

import copy
import functools
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from rich.console import Console

from distill import checkpoint, family, student, teacher
from distill.config import (
    REFERENCES,
    Config,
    ConfigError,
    Evaluate,
    Stage,
    Train,
    UserError,
    fingerprint,
    given_student,
    of_student,
)
from distill.data import align, corpus, encode, tasks

SMOKE_LAYERS = 6

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

    def prepare(self, pending: list[str]) -> None:
        """Load all that the stages to come need, so that wrong data is refused before anything is trained."""
        if not pending:
            return
        teacher.check_weights(self.teacher)
        if given_student(self.config):
            teacher.check_weights(self.student)
        _ = self.student_tokenizer  # on every process: they wait for each other there
        kinds = [self.config.stages[name] for name in pending]
        _fits(self, kinds)
        if any(not isinstance(stage, Train) or stage.data == "tasks" for stage in kinds):
            self.say(coverage(self.tasks[1]))
            _head_fits(self, "teacher.name", self.teacher)
            if given_student(self.config):
                _head_fits(self, "student.name", self.student)
        for name, stage in zip(pending, kinds, strict=True):
            if isinstance(stage, Train) and stage.data == "corpus":
                self.corpus(name)

    def inputs(self, stage: Stage) -> dict[str, str]:
        """Fingerprint of every stage that a stage is made from."""
        named = [getattr(stage, key, None) for key in REFERENCES]
        files = {
            str(name): self.folder / str(name) / checkpoint.MANIFEST for name in named if name in self.config.stages
        }
        return {name: fingerprint(checkpoint.read_json(file)) for name, file in files.items() if file.is_file()}

    def checkpoint(self, stage: str, task: str | None = None) -> Path:
        """Model folder that a finished stage left, for a task if there is one for each, or a model as given."""
        if stage in ("teacher", "student"):
            return Path(self.teacher if stage == "teacher" else self.student)
        folder = self.folder / stage
        manifest = checkpoint.read_json(folder / checkpoint.MANIFEST)
        if "same_as" in manifest:
            return self.checkpoint(manifest["same_as"], task)
        return folder / task if task is not None and (folder / task).is_dir() else folder

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

    @functools.cached_property
    def teacher(self) -> str:
        """Folder of the teacher as given."""
        given = self.config.teacher
        local = given.kind == "hub" and given.name is not None and Path(given.name).is_dir()
        if given.kind == "random" or (self.config.limit.smoke and not local):
            return self._random("teacher", max([SMOKE_LAYERS - 1, *(self.config.student.layers or [])]) + 1)
        with self.main_first():
            return teacher.resolve(given)

    @functools.cached_property
    def student(self) -> str:
        """Folder of the student, where one is given."""
        name = self.config.student.name
        if self.config.limit.smoke and not (name is not None and Path(name).is_dir()):
            return self._random("student", SMOKE_LAYERS // 2)
        with self.main_first():
            return teacher.fetch(name, "student.name")

    def _random(self, what: str, layers: int) -> str:
        folder = self.folder / f"random_{what}_{layers}"
        with self.main_first():
            if not (folder / "config.json").is_file():
                teacher.random_teacher(folder, layers, self.texts[0])
        return str(folder)

    @functools.cached_property
    def tokenizer(self) -> Any:
        """The teacher's. It pads where the family can have it, whatever was stored."""
        loaded = teacher.load_tokenizer(self.teacher)
        loaded.padding_side = "left" if family.family_of(teacher.load_config(self.teacher)).pads_left else "right"
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
        """Whose tokenizer the models of a stage read, teacher or student, and that tokenizer."""
        own = self.config.student.tokenizer is not None or given_student(self.config)
        return (
            ("student", self.student_tokenizer)
            if own and of_student(self.config, stage)
            else ("teacher", self.tokenizer)
        )

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


def _fits(ctx: Context, stages: list[Stage]) -> None:
    """Refuse what the teacher cannot take."""
    loaded = teacher.load_config(ctx.teacher)
    teacher.check_vocabulary(ctx.tokenizer, loaded)
    errors: list[str] = []
    longest = family.max_length(loaded)
    lengths: dict[str, int] = {}
    for stage in stages:
        if isinstance(stage, Evaluate):
            lengths |= {f"stages.{_name(ctx, stage)}.shapes {shape}": shape[1] for shape in stage.shapes}
        if isinstance(stage, Train) and stage.data == "corpus":
            lengths["corpus.max_length"] = ctx.config.corpus.max_length
        else:
            lengths["tasks.max_length"] = ctx.config.tasks.max_length
        if isinstance(stage, Train) and (stage.build_student or stage.start == "student"):
            made, wrong = _student(ctx, loaded) if stage.build_student else _given_student(ctx)
            longest = longest if made is None else min(longest, family.max_length(made))
            errors += wrong
        if isinstance(stage, Train) and stage.data == "corpus" and not family.family_of(loaded).mlm_head:
            errors.append(
                f"teacher.name: got a model of type {loaded.model_type}; must be one that stages on a corpus can use, "
                f"of type {', '.join(family.STUDENTS)}; use recipe=task, which trains on tasks alone"
            )
            break
        if isinstance(stage, Train) and stage.data == "corpus" and _tokenizer(ctx, stage).mask_token_id is None:
            errors.append(
                "teacher.name: got a tokenizer (or student.tokenizer) without a mask token; must have one for "
                "masked-language modelling; choose an encoder's"
            )
    errors += [
        f"{key}: got {value}; must be <= {longest}, the longest that teacher and student take; set it to {longest}"
        for key, value in lengths.items()
        if value > longest
    ]
    if errors:
        raise ConfigError(dict.fromkeys(errors))


def _given_student(ctx: Context) -> tuple[Any, list[str]]:
    """Config of the student that is given, and what is wrong with it."""
    try:
        config = teacher.load_config(ctx.student, "student.name")
        teacher.check_vocabulary(ctx.student_tokenizer, config, "student.name")
    except ConfigError as error:
        return None, error.messages
    if config.model_type in family.STUDENTS:
        return config, []
    known = ", ".join(family.STUDENTS)
    return None, [f"student.name: got a model of type {config.model_type}; must be one of {known}; choose such a model"]


def _student(ctx: Context, loaded: Any) -> tuple[Any, list[str]]:
    """Config of the student that would be built, and what is wrong with it."""
    wanted, own = ctx.config.student, ctx.student_tokenizer
    if wanted.tokenizer is not None:
        loaded = copy.deepcopy(loaded)
        student.config_for(loaded, own)
    if loaded.model_type not in family.STUDENTS:
        return None, [
            f"teacher.name: got a model of type {loaded.model_type}; must be of type "
            f"{', '.join(family.STUDENTS)} for a student to be built from it; use recipe=task"
        ]
    layers = wanted.layers or student.half_depth(loaded.num_hidden_layers)
    sizes = {name: getattr(wanted, name) for name in student.SIZES}
    try:
        config = student.student_config(loaded, layers, wanted.family, sizes)
        teacher.check_vocabulary(own, config)
        if wanted.init == "teacher_layers":
            student.check_transfer(loaded, config)
    except ConfigError as error:
        return None, error.messages
    return config, []


def _tokenizer(ctx: Context, stage: Stage) -> Any:
    return ctx.tokenizer_of(_name(ctx, stage))[1]


def _name(ctx: Context, stage: Stage) -> str:
    return next(name for name, other in ctx.config.stages.items() if other is stage)


def _head_fits(ctx: Context, key: str, folder: str) -> None:
    classes = teacher.head_labels(folder)
    wrong = [task for task, data in ctx.tasks[0].items() if classes not in (None, data.task.num_labels)]
    if wrong:
        raise ConfigError(
            f"{key}: got a classifier of {classes} classes; must have a head for {', '.join(wrong)}, or none; "
            "choose the tasks it was made for with tasks.names, or a model without a head"
        )


def coverage(rows: list[dict[str, Any]]) -> str:
    """One line a task: rows of each split, of how many there are officially."""
    lines: dict[str, list[str]] = {}
    for row in rows:
        official = "" if row["rows"] == row["official_rows"] else f" of {row['official_rows']}"
        lines.setdefault(row["task"], []).append(f"{row['split']} {row['rows']}{official}")
    return "\n".join(f"{task}: {', '.join(splits)} rows" for task, splits in lines.items())


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
