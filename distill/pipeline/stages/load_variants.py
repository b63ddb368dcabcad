"""Finds the variants that an evaluate step runs, and their files, and loads each as a runner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace as replace_struct

from distill.config import Quantize
from distill.config.backends import BACKENDS
from distill.config.plan import SHARED_HEADS, Compared, Step, compared
from distill.config.schemes import FLOAT, ONNX, SCHEMES
from distill.data.members import read_by
from distill.data.splits import DEVELOPMENT
from distill.data.tasks import TaskData, wanted
from distill.deploy.export.quantized import FLOAT32, development_file, development_key
from distill.inference import runners, variants
from distill.inference.predict import in_windows
from distill.inference.variants import Variant
from distill.pipeline.artefacts import Quantized
from distill.pipeline.context import Context
from distill.pipeline.context.checkpoints import Checkpoints
from distill.pipeline.runtime import Runtime
from distill.pipeline.stages import quantize
from distill.pipeline.stages.quantize import QuantizeInputs
from distill.runtime.machine import detect_precision


@dataclass(frozen=True)
class Models:
    """The models that an evaluate step compares, and the files that quantize steps made of them."""

    reference: Step
    """The step that trained the teacher."""
    members: int
    """Number of teachers."""
    compared: Sequence[Compared]
    checkpoints: dict[Step, Checkpoints]
    """By the step that made them, also of quantize steps."""
    quantized: dict[Step, Quantized]
    one_encoder: frozenset[Step]
    """The steps whose models of all tasks have one encoder."""
    shared: bool
    """Whether the student of all tasks has one encoder."""
    columns: dict[str, slice]
    """Task -> its columns among the outputs of all heads of a student with one encoder."""
    window: int | None
    """Number of tokens of the windows in which teachers read long texts; None if they read whole texts."""
    seen: frozenset[str] = frozenset()
    """The tasks for which the teacher is a given model that was not trained here, and whose development rows are of the
    file with the training rows: it may have been trained on them."""
    quantized_teacher: Step | None = None
    """The quantize step of the teacher; None if the evaluate step quantizes it."""


def models(ctx: Context, step: Step) -> Models:
    """The models that an evaluate step compares."""
    reference, every = step.teacher, compared(step)
    assert isinstance(reference, Step)
    whole = step.source("whole")
    assert whole is None or isinstance(whole, Step)
    quantized = dict.fromkeys(made for made in (whole, *(each.quantized for each in every)) if made is not None)
    of_students = [
        made for each in every for made in (each.student, each.pruned, *each.controls.values()) if made is not None
    ]
    steps = dict.fromkeys((reference, *of_students, *quantized))
    columns, end = dict[str, slice](), 0
    for task, data in ctx.tasks.items():
        columns[task] = slice(end, end := end + data.task.outputs)
    return Models(
        reference=reference,
        members=len(ctx.given.teachers),
        compared=every,
        checkpoints={made: ctx.models(made) for made in steps},
        quantized={made: ctx.folder.result(made, Quantized) for made in quantized},
        quantized_teacher=whole,
        one_encoder=frozenset(made for made in steps if ctx.shares_encoder(made.settings)),
        shared=ctx.shared,
        columns=columns,
        window=ctx.config.teacher.window,
        seen=frozenset(_seen(ctx, reference)),
    )


def _seen(ctx: Context, reference: Step) -> Iterator[str]:
    """As in `Models.seen`."""
    for task, settings in wanted(ctx.config.tasks).items():
        aside = DEVELOPMENT in ctx.tasks[task].development and settings.development is None
        if aside and (made := ctx.folder.model(reference, task)) is not None and made.steps == 0:
            yield task


def variants_of(models: Models, tasks: int, runtime: Runtime) -> list[Variant]:
    """All variants that an evaluate step compares on a number of tasks."""

    def schemes(quantized: Step | None) -> list[str]:
        return [] if quantized is None else models.quantized[quantized].schemes

    device, smoke = runtime.machine.device, runtime.limit.smoke
    cuda = device.type == "cuda"
    supported = variants.supported(
        bf16=detect_precision("auto", device) == "bf16",
        cuda=cuda,
        compiled=not smoke,  # compiling takes longer than all else in a smoke run
        runtimes=[
            name
            for name, backend in BACKENDS.items()
            if backend.float32 and backend.loads != "transformers" and runners.runs_here(backend, cuda)
        ],
    )
    # Exporting and quantizing the models of several tasks takes longer than all else in a smoke run.
    references = not smoke or tasks == 1
    return variants.variants(
        models.reference,
        models.compared,
        schemes,
        members=models.members,
        supported=supported,
        references=references,
        quantized_teacher=models.quantized_teacher,
    )


@dataclass(frozen=True)
class Loader:
    """Finds and loads the files of an evaluate step's variants."""

    name: str
    """Folder of the step, relative to the run folder."""
    models: Models
    tasks: dict[str, TaskData]
    variants: Sequence[Variant]
    runtime: Runtime
    threads: int | None = None
    """CPU threads of a model; None: those of the main process while the others sleep."""

    @property
    def folder(self) -> Path:
        return self.runtime.folder / self.name

    @cached_property
    def _own_files(self) -> dict[str, Quantized]:
        """Folder below the step's -> the files in it. The step makes its missing files first."""
        folders = dict.fromkeys(variant.made for variant in self.variants if variant.made is not None)
        return {folder: self._files_of(folder) for folder in folders}

    def _files_of(self, folder: str) -> Quantized:
        """The quantized files and ONNX files of the models that no quantize step quantizes.

        The teacher is quantized without limits on its loss, and controls with the limits of their student.
        """
        group = [variant for variant in self.variants if variant.made == folder]
        start, one_encoder = self.models.checkpoints[group[0].step], group[0].step in self.models.one_encoder
        schemes = list(dict.fromkeys(variant.key for variant in group if variant.key in SCHEMES))
        limited, onnx = group[0].role != "teacher", any(variant.file == ONNX for variant in group)
        names = self.tasks if schemes or one_encoder else self._timed(group[0], {})
        students = (each.quantized.settings for each in self.models.compared if each.quantized is not None)
        settings, results = replace(next(students, Quantize()), schemes=schemes), []
        for member, part in enumerate(_parts(folder, self._members(group[0]))):
            own = {name: read_by(self.tasks[name], member) for name in names}
            inputs = QuantizeInputs(f"{self.name}/{part}", start, own, one_encoder, member, limited, onnx)
            results.append(quantize.run(inputs, settings, self.runtime))
        failed = {name: text for result in results for name, text in result.failed.items()}
        return replace_struct(results[0], failed=failed)

    def _made_with(self, variant: Variant) -> Quantized | None:
        """The files that a variant is one of; None for a float checkpoint."""
        if variant.quantized is not None:
            return self.models.quantized[variant.quantized]
        return None if variant.made is None else self._own_files[variant.made]

    def firsts(self, among: Sequence[Variant]) -> dict[str, str]:
        """Name of each of these variants -> the first of them that runs the same file in the same way, which is often
        itself: a student in float32 that is the teacher itself is measured once."""
        found: dict[Any, str] = {}

        def first(variant: Variant) -> str:
            if variant.key in SCHEMES:  # limits on the loss are the student's
                return variant.name
            read = (self.window(variant), len(self.tokenizers(variant)), variant.member)
            return found.setdefault((variant.step, variant.backend, variant.scheme, read), variant.name)

        return {variant.name: first(variant) for variant in among}

    def failures(self) -> Iterator[tuple[str, str]]:
        """(name, reason) of each variant whose file could not be made."""
        for variant in self.variants:
            made = self._made_with(variant)
            if made is not None and variant.key in made.failed:
                yield variant.name, made.failed[variant.key]

    def tokenizers(self, variant: Variant) -> list[Any]:
        """Tokenizer of each model of a variant: several for an ensemble."""
        every = self.models.checkpoints[variant.step].tokenizers
        return every if variant.role == "teacher" else [every[variant.member or 0]]

    def read_by(self, data: TaskData, tokenizer: Any) -> TaskData:
        """A task as the models with this tokenizer read it: of several teachers, each with its own prompts."""
        teachers = self.models.checkpoints[self.models.reference].tokenizers
        return read_by(data, next((number for number, own in enumerate(teachers) if own is tokenizer), 0))

    def _members(self, variant: Variant) -> int:
        return len(self.models.checkpoints[variant.step].tokenizers)

    def folders(self, variant: Variant, task: str) -> list[Path]:
        """The float checkpoints of a variant for a task: several for an ensemble, one for a member of it."""
        found = self.models.checkpoints[variant.step].folders[task]
        return found if variant.member is None else [found[variant.member]]

    def whole(self, variant: Variant) -> bool:
        """Whether one file of the variant has the heads of all tasks."""
        return variant.file is not None and variant.step in self.models.one_encoder

    def paths(self, variant: Variant, task: str) -> list[Path]:
        """Files or folders that are loaded to run a variant."""
        if variant.file is None:
            return self.folders(variant, task)
        if variant.made is not None:
            part = SHARED_HEADS if self.whole(variant) else task
            parts = _parts(variant.made, self._members(variant))
            return [self.folder / name / part / variant.file for name in parts]
        assert variant.quantized is not None
        return [folder / variant.file for folder in self.models.checkpoints[variant.quantized].folders[task]]

    def development(self, variant: Variant, task: str) -> dict[str, np.ndarray]:
        """Split -> logits for the task's development rows, of a variant that was scored when it was quantized or when
        others were quantized from it; empty for any other variant, and for teachers of an ensemble or of windows, whose
        logits are not those of one model for a whole text."""
        alike = [
            v
            for v in self.variants
            if (v.role, v.step, v.member) == (variant.role, variant.step, variant.member) and v.key in SCHEMES
        ]
        if not alike or len(self.tokenizers(variant)) > 1 or self.window(variant) is not None:
            return {}
        scheme = SCHEMES.get(variant.key or "")
        own = FLOAT if scheme is None else (scheme.backend, scheme.scheme)
        file = self.paths(alike[0], task)[0].parent / development_file(self.runtime.machine)
        if (variant.backend, variant.scheme) != own or not file.is_file():
            return {}
        with np.load(file, allow_pickle=False) as stored:
            keys = {s: development_key(task, variant.key or FLOAT32, s) for s in self.tasks[task].development}
            return {split: stored[key] for split, key in keys.items() if key in stored}

    def parts(self, variant: Variant, task: str, *, many: bool = False) -> list[runners.Runner]:
        """Each model of a variant for a task: several for an ensemble. `many`: as in `runners.load`."""
        machine, found, pairs = self.runtime.machine, [], self.tasks[task].task.in_pairs
        for path, tokenizer in zip(self.paths(variant, task), self.tokenizers(variant), strict=True):
            runner = runners.load(
                variant.name,
                path,
                backend=variant.backend,
                scheme=variant.scheme,
                device=machine.device.type,
                threads=self.threads or machine.threads,
                row_by_row=variant.row_by_row,
                many=many,
            )
            run = in_windows(runner.run, tokenizer, self.window(variant), pairs=pairs)
            found.append(replace(runner, run=run))
        return found

    def window(self, variant: Variant) -> int | None:
        """Number of tokens of the windows in which a variant reads long texts; None if it reads whole texts."""
        return self.models.window if variant.role in ("teacher", "member") else None

    def timed(self, variant: Variant) -> runners.Runner:
        """A variant as one runner: its model of one task or, where the student has one encoder for all tasks, of all.

        One encoder then runs once; models with encoders of their own run one after the other, on the same batch.
        """
        tasks, machine = self.timed_tasks(variant), self.runtime.machine
        if len(tasks) == 1:
            return self._timed_on(variant, tasks[0])
        if variant.step not in self.models.one_encoder:
            return runners.in_turn(variant.name, [self._timed_on(variant, task) for task in tasks])
        folders = [path for task in tasks for path in self.paths(variant, task)]
        device, threads = machine.device.type, self.threads or machine.threads
        return runners.one_pass(variant.name, folders, scheme=variant.scheme, device=device, threads=threads)

    def weights(self, variant: Variant, task: str) -> list[float]:
        """Weight of each model of a variant in the mean of their probabilities or cosines."""
        return self.models.checkpoints[variant.step].weights[task]

    def _timed_on(self, variant: Variant, task: str) -> runners.Runner:
        return runners.ensemble(variant.name, self.parts(variant, task), self.weights(variant, task))

    def timed_tasks(self, variant: Variant) -> list[str]:
        """The tasks whose models' time and size are reported together: all where the student has one encoder for all.

        Else the one with most modules in float, the first of equals. A file with all heads is timed once.
        """
        made = self._made_with(variant)
        return self._timed(variant, {} if made is None else made.kept)

    def _timed(self, variant: Variant, in_float: dict[str, dict[str, list[str]]]) -> list[str]:
        tasks = list(self.tasks)
        if self.models.shared:
            return tasks[: 1 if self.whole(variant) else None]
        return [max(tasks, key=lambda task: len(in_float.get(task, {}).get(variant.key or "", [])))]


def _parts(folder: str, members: int) -> list[str]:
    """Folders below the step's: one for each teacher of an ensemble."""
    return [folder] if members == 1 else [f"{folder}/{number + 1}" for number in range(members)]
