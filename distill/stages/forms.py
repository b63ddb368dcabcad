"""The forms of teacher, student and baseline that an evaluation compares: backend, arithmetic, files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distill import checkpoint
from distill.compress.quantize import ONNX, SCHEMES
from distill.config import Evaluate
from distill.evaluate import engines
from distill.evaluate.predict import in_windows
from distill.plan import made_by
from distill.stages.context import Context

FLOAT32 = ("fp32", "fp32_medium")
"""Schemes that the teacher's fastest float32 form is looked for among. The second is left out where it is not."""


@dataclass(frozen=True)
class Form:
    """A model in one form it can be run in. `scored`: its predictions are made too, else only its timing."""

    role: str
    backend: str
    scheme: str
    stage: str
    file: str | None = None
    scored: bool = True
    alone: bool = False
    """Scored one row at a time: its logits depend on what else is in the batch."""
    member: int | None = None
    """Which teacher of an ensemble, counted from 0, where it is run without the others."""
    goal: str = ""
    """Label of the target that it was made for, where a run has several."""

    @property
    def label(self) -> str:
        return " ".join([self.role, *([] if self.member is None else [str(self.member + 1)]), *self.goal.split()])

    @property
    def name(self) -> str:
        return f"{self.label} {self.backend} {self.scheme}"


def forms(ctx: Context, settings: Evaluate) -> list[Form]:
    """Everything that is compared. Of forms with one arithmetic, only one is scored; all are timed."""
    teacher, best = settings.teacher, best_float32(ctx)
    found = [
        Form("teacher", "torch", "fp32", teacher, scored=best == "fp32"),
        Form("teacher", "torch", "fp32_medium", teacher),
        Form("teacher", "torch", "bf16", teacher, scored=False),
        Form("teacher", "torch", "fp16", teacher, scored=False),
        Form("teacher", "onnxruntime", "fp32", teacher, ONNX, scored=False),
        *(Form("teacher", backend, "fp32", teacher, ONNX, scored=False) for backend in _backends(ctx, settings)),
        *(Form("member", "torch", best, teacher, member=n) for n in range(len(ctx.teachers)) if len(ctx.teachers) > 1),
        *(form for goal in _goals(ctx, settings) for form in _of_goal(ctx, settings, goal)),
    ]
    absent = {"fp32_medium"} if best == "fp32" else set()
    absent |= set() if ctx.precision == "bf16" else {"bf16"}
    absent |= set() if ctx.accelerator.device.type == "cuda" else {"fp16"}  # CPUs have no fast arithmetic for it
    return [form for form in found if form.scheme not in absent]


def _goals(ctx: Context, settings: Evaluate) -> list[str]:
    """Labels of the targets that students were made for; one without a label where there is one student."""
    return [name.partition("/")[2] for name in made_by(ctx.config, settings.student)]


def _of_goal(ctx: Context, settings: Evaluate, goal: str) -> Iterator[Form]:
    """The student that was made for a target, its int8 forms, and what it is compared with."""
    best = best_float32(ctx)
    student, made, pruned, baseline = (
        f"{stage}/{goal}" if f"{stage}/{goal}" in ctx.config.stages else stage
        for stage in (settings.student, settings.quantized, settings.pruned, settings.baseline)
    )
    for scheme in ("fp32", "fp32_medium", "bf16", "fp16"):
        yield Form("student", "torch", scheme, str(student), scored=scheme != "fp32" or best == "fp32", goal=goal)
    floats = set[str]()
    for one in (SCHEMES[scheme] for scheme in _schemes(ctx, made)):
        if one.onnx and one.backend not in floats:
            floats.add(one.backend)
            yield Form("student", one.backend, "fp32", str(made), ONNX, goal=goal)
        yield Form("student", one.backend, one.scheme, str(made), one.file, alone=one.alone, goal=goal)
        if one.compiled:
            yield Form("student", one.backend, f"{one.scheme}{engines.COMPILED}", str(made), one.file, False, goal=goal)
    for role, stage in (("pruned", pruned), ("baseline", baseline)):
        if stage is not None:
            yield Form(role, "torch", best, stage, goal=goal)


def _backends(ctx: Context, settings: Evaluate) -> list[str]:
    """Runtimes of ONNX files, besides ONNX Runtime, that a student is compared on: the teacher is too."""
    stages = [] if settings.quantized is None else made_by(ctx.config, settings.quantized)
    made = [SCHEMES[scheme] for stage in stages for scheme in _schemes(ctx, stage)]
    return sorted({one.backend for one in made if one.onnx} - {"onnxruntime"})


def best_float32(ctx: Context) -> str:
    """Scheme of torch's float32 that is scored: its fast path where that is real float32."""
    return "fp32_medium" if ctx.fast_float32 else "fp32"


def reference(ctx: Context) -> str:
    """Name of the form that every other one is held against."""
    return f"teacher torch {best_float32(ctx)}"


def _schemes(ctx: Context, stage: str | None) -> list[str]:
    if stage is None:
        return []
    made: list[str] = checkpoint.read_json(ctx.folder / stage / checkpoint.MANIFEST)["schemes"]
    return made


def failures(ctx: Context, settings: Evaluate) -> Iterator[tuple[str, str]]:
    stages = [] if settings.quantized is None else made_by(ctx.config, settings.quantized)
    for stage in stages:
        manifest = checkpoint.read_json(ctx.folder / stage / checkpoint.MANIFEST)
        files = {SCHEMES[name].file if name in SCHEMES else name: text for name, text in manifest["failed"].items()}
        for form in forms(ctx, settings):
            if form.stage == stage and form.file in files:
                yield form.name, files[form.file]


def paths(ctx: Context, form: Form, task: str) -> list[Path]:
    """The model of a form: several for a teacher that is an ensemble."""
    folders = ctx.checkpoints(form.stage, task)
    folders = folders if form.member is None else [folders[form.member]]
    return [folder / form.file if form.file else folder for folder in folders]


def shown(ctx: Context, form: Form) -> str:
    """The task whose model is timed and weighed: the first, or that with most modules left in float, if they differ."""
    kept: dict[str, dict[str, list[str]]] = {}
    if form.file is not None and form.role != "teacher":
        kept = checkpoint.read_json(ctx.folder / form.stage / checkpoint.MANIFEST)["kept"]
    scheme = next((name for name, one in SCHEMES.items() if one.file == form.file), "")
    return max(ctx.tasks[0], key=lambda task: len(kept.get(task, {}).get(scheme, [])))


def tokenizers(ctx: Context, form: Form) -> list[Any]:
    """What each model of a form reads with."""
    whose, own = ctx.tokenizer_of(form.stage)
    if whose != "teacher":
        return [own]
    return ctx.tokenizers if form.role == "teacher" else [ctx.tokenizers[form.member or 0]]


def engine(ctx: Context, form: Form, path: Path, tokenizer: Any) -> engines.Engine:
    """One model of a form."""
    device = ctx.accelerator.device.type
    made = engines.load(form.name, path, backend=form.backend, scheme=form.scheme, device=device, threads=ctx.threads)
    window = ctx.config.teacher.window if form.role in ("teacher", "member") else None
    return replace(made, run=in_windows(made.run, tokenizer, window))
