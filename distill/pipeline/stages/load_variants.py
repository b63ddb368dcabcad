"""Finds the variants that an evaluate step runs, and their files, and loads each as a runner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from distill.config import Quantize
from distill.config.backends import BACKENDS
from distill.config.plan import SHARED_HEADS, Step, compared
from distill.config.schemes import ONNX, SCHEMES
from distill.inference import runners, variants
from distill.inference.predict import in_windows
from distill.inference.variants import Variant
from distill.pipeline.artefacts import Quantized
from distill.pipeline.context import Context
from distill.pipeline.stages.quantize import Models, quantize_models
from distill.runtime.machine import detect_precision


def variants_of(ctx: Context, step: Step) -> list[Variant]:
    """All variants that an evaluate step compares."""

    def schemes(quantized: Step | None) -> list[str]:
        return [] if quantized is None else ctx.folder.result(quantized, Quantized).schemes

    teacher, device = step.teacher, ctx.machine.device
    assert isinstance(teacher, Step)
    cuda = device.type == "cuda"
    supported = variants.supported(
        bf16=detect_precision("auto", device) == "bf16",
        cuda=cuda,
        compiled=not ctx.config.limit.smoke,  # compiling takes longer than all else in a smoke run
        runtimes=[
            name
            for name, backend in BACKENDS.items()
            if backend.float32 and backend.loads != "transformers" and runners.runs_here(backend, cuda)
        ],
    )
    # Exporting and quantizing the models of several tasks takes longer than all else in a smoke run.
    references = not ctx.config.limit.smoke or len(ctx.tasks) == 1
    members = len(ctx.given.teachers)
    return variants.variants(
        teacher, compared(step), schemes, members=members, supported=supported, references=references
    )


@dataclass(frozen=True)
class Loader:
    """Finds and loads the files of an evaluate step's variants."""

    ctx: Context
    step: Step
    variants: Sequence[Variant]

    @property
    def folder(self) -> Path:
        return self.ctx.folder.of(self.step)

    @cached_property
    def _own_files(self) -> dict[str, Quantized]:
        """Folder below the step's -> the files in it. The step makes its missing files first."""
        folders = dict.fromkeys(variant.made for variant in self.variants if variant.made is not None)
        return {folder: self._files_of(folder) for folder in folders}

    def _files_of(self, folder: str) -> Quantized:
        """The quantized files and ONNX files of the models that no quantize step quantizes.

        The teacher is quantized without limits on its loss, and the baseline with the limits of its student.
        """
        ctx, group = self.ctx, [variant for variant in self.variants if variant.made == folder]
        start, settings = group[0].step, self._quantization
        schemes = tuple(dict.fromkeys(variant.key for variant in group if variant.key in SCHEMES))
        limited, onnx = group[0].role != "teacher", any(variant.file == ONNX for variant in group)
        tasks = None if schemes else self._timed(group[0], {})
        results = []
        for member, part in enumerate(_parts(folder, len(ctx.checkpoints(start)))):
            name = f"{self.step.folder}/{part}"
            models = Models(start, self.folder / part, name, settings, schemes, member, limited, onnx)
            results.append(quantize_models(ctx, models, tasks))
        return Quantized(
            schemes=results[0].schemes,
            failed={name: text for result in results for name, text in result.failed.items()},
            kept=results[0].kept,
            development=results[0].development,
        )

    @property
    def _quantization(self) -> Quantize:
        """Settings with which the compared students are quantized."""
        steps = [each.quantized for each in compared(self.step) if each.quantized is not None]
        settings: Quantize = steps[0].settings if steps else Quantize()
        return settings

    def _made_with(self, variant: Variant) -> Quantized | None:
        """The files that a variant is one of; None for a float checkpoint."""
        if variant.quantized is not None:
            return self.ctx.folder.result(variant.quantized, Quantized)
        return None if variant.made is None else self._own_files[variant.made]

    def failures(self) -> Iterator[tuple[str, str]]:
        """(name, reason) of each variant whose file could not be made."""
        for variant in self.variants:
            made = self._made_with(variant)
            if made is not None and variant.key in made.failed:
                yield variant.name, made.failed[variant.key]

    def tokenizers(self, variant: Variant) -> list[Any]:
        """Tokenizer of each model of a variant: several for an ensemble."""
        if variant.role == "teacher":
            return [self.ctx.tokenizer(variant.step, number) for number in range(self._members(variant))]
        return [self.ctx.tokenizer(variant.step, variant.member or 0)]

    def _members(self, variant: Variant) -> int:
        return len(self.ctx.checkpoints(variant.step))

    def folders(self, variant: Variant, task: str) -> list[Path]:
        """The float checkpoints of a variant for a task: several for an ensemble, one for a member of it."""
        found = self.ctx.checkpoints(variant.step, task)
        return found if variant.member is None else [found[variant.member]]

    def whole(self, variant: Variant) -> bool:
        """Whether one file of the variant has the heads of all tasks."""
        return variant.file is not None and self.ctx.shares_encoder(variant.step.settings)

    def paths(self, variant: Variant, task: str) -> list[Path]:
        """Files or folders that are loaded to run a variant."""
        if variant.file is None:
            return self.folders(variant, task)
        if variant.made is not None:
            part = SHARED_HEADS if self.whole(variant) else task
            parts = _parts(variant.made, self._members(variant))
            return [self.folder / name / part / variant.file for name in parts]
        assert variant.quantized is not None
        return [folder / variant.file for folder in self.ctx.checkpoints(variant.quantized, task)]

    def parts(self, variant: Variant, task: str) -> list[runners.Runner]:
        """Each model of a variant for a task: several for an ensemble."""
        machine, found = self.ctx.machine, []
        for path, tokenizer in zip(self.paths(variant, task), self.tokenizers(variant), strict=True):
            runner = runners.load(
                variant.name,
                path,
                backend=variant.backend,
                scheme=variant.scheme,
                device=machine.device.type,
                threads=machine.threads,
                row_by_row=variant.row_by_row,
            )
            found.append(replace(runner, run=in_windows(runner.run, tokenizer, self.window(variant))))
        return found

    def window(self, variant: Variant) -> int | None:
        """Number of tokens of the windows in which a variant reads long texts; None if it reads whole texts."""
        return self.ctx.config.teacher.window if variant.role in ("teacher", "member") else None

    def timed(self, variant: Variant) -> runners.Runner:
        """A variant as one runner: its model of one task or, where the student has one encoder for all tasks, of all.

        One encoder then runs once; models with encoders of their own run one after the other, on the same batch.
        """
        tasks, machine = self.timed_tasks(variant), self.ctx.machine
        if len(tasks) == 1:
            return self._timed_on(variant, tasks[0])
        if not self.ctx.shares_encoder(variant.step.settings):
            return runners.in_turn(variant.name, [self._timed_on(variant, task) for task in tasks])
        folders = [path for task in tasks for path in self.paths(variant, task)]
        device, threads = machine.device.type, machine.threads
        return runners.one_pass(variant.name, folders, scheme=variant.scheme, device=device, threads=threads)

    def _timed_on(self, variant: Variant, task: str) -> runners.Runner:
        return runners.ensemble(variant.name, self.parts(variant, task), self.ctx.shares(variant.step, task))

    def timed_tasks(self, variant: Variant) -> list[str]:
        """The tasks whose models' time and size are reported together: all where the student has one encoder for all.

        Else the one with most modules in float, the first of equals. A file with all heads is timed once.
        """
        made = self._made_with(variant)
        return self._timed(variant, {} if made is None else made.kept)

    def _timed(self, variant: Variant, in_float: dict[str, dict[str, list[str]]]) -> list[str]:
        tasks = list(self.ctx.tasks)
        if self.ctx.shared:
            return tasks[: 1 if self.whole(variant) else None]
        return [max(tasks, key=lambda task: len(in_float.get(task, {}).get(variant.key or "", [])))]


def _parts(folder: str, members: int) -> list[str]:
    """Folders below the step's: one for each teacher of an ensemble."""
    return [folder] if members == 1 else [f"{folder}/{number + 1}" for number in range(members)]
