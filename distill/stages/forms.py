"""The forms of teacher, student and baseline that an evaluation compares: backend, arithmetic, files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distill import checkpoint
from distill.config import Evaluate
from distill.evaluate import engines
from distill.evaluate.predict import in_windows
from distill.stages.context import Context
from distill.stages.quantize import BITSANDBYTES, ONNX, ONNX_INT8

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

    @property
    def label(self) -> str:
        return self.role if self.member is None else f"{self.role} {self.member + 1}"

    @property
    def name(self) -> str:
        return f"{self.label} {self.backend} {self.scheme}"


def forms(ctx: Context, settings: Evaluate) -> list[Form]:
    """Everything that is compared. Of forms with one arithmetic, only one is scored; all are timed."""
    teacher, student, made, best = settings.teacher, settings.student, settings.quantized or "", best_float32(ctx)
    quantized = {
        "onnxruntime": [
            Form("student", "onnxruntime", "fp32", made, ONNX),
            Form("student", "onnxruntime", "int8", made, ONNX_INT8, alone=True),
        ],
        "bitsandbytes": [Form("student", "bitsandbytes", "int8", made, BITSANDBYTES)],
    }
    found = [
        Form("teacher", "torch", "fp32", teacher, scored=best == "fp32"),
        Form("teacher", "torch", "fp32_medium", teacher),
        Form("teacher", "torch", "bf16", teacher, scored=False),
        Form("teacher", "onnxruntime", "fp32", teacher, ONNX, scored=False),
        *(Form("member", "torch", best, teacher, member=n) for n in range(len(ctx.teachers)) if len(ctx.teachers) > 1),
        Form("student", "torch", "fp32", student, scored=best == "fp32"),
        Form("student", "torch", "fp32_medium", student),
        Form("student", "torch", "bf16", student),
        *(form for scheme in _schemes(ctx, settings) for form in quantized[scheme]),
    ]
    if settings.baseline is not None:
        found.append(Form("baseline", "torch", best, settings.baseline))
    absent = {"fp32_medium"} if best == "fp32" else set()
    absent |= set() if ctx.precision == "bf16" else {"bf16"}
    return [form for form in found if form.scheme not in absent]


def best_float32(ctx: Context) -> str:
    """Scheme of torch's float32 that is scored: its fast path where that is real float32."""
    return "fp32_medium" if ctx.fast_float32 else "fp32"


def reference(ctx: Context) -> str:
    """Name of the form that every other one is held against."""
    return f"teacher torch {best_float32(ctx)}"


def _schemes(ctx: Context, settings: Evaluate) -> list[str]:
    if settings.quantized is None:
        return []
    made: list[str] = checkpoint.read_json(ctx.folder / settings.quantized / checkpoint.MANIFEST)["schemes"]
    return made


def failures(ctx: Context, settings: Evaluate) -> Iterator[tuple[str, str]]:
    if settings.quantized is not None:
        manifest = checkpoint.read_json(ctx.folder / settings.quantized / checkpoint.MANIFEST)
        for scheme, reason in manifest["failed"].items():
            for form in forms(ctx, settings):
                if form.stage == settings.quantized and form.backend == scheme:
                    yield form.name, reason


def paths(ctx: Context, form: Form, task: str) -> list[Path]:
    """The model of a form: several for a teacher that is an ensemble."""
    folders = ctx.checkpoints(form.stage, task)
    folders = folders if form.member is None else [folders[form.member]]
    return [folder / form.file if form.file else folder for folder in folders]


def tokenizers(ctx: Context, form: Form) -> list[Any]:
    """What each model of a form reads with."""
    whose, own = ctx.tokenizer_of(form.stage)
    if whose == "student":
        return [own]
    return ctx.tokenizers if form.role == "teacher" else [ctx.tokenizers[form.member or 0]]


def engine(ctx: Context, form: Form, path: Path, tokenizer: Any) -> engines.Engine:
    """One model of a form."""
    if form.backend == "onnxruntime":
        made = engines.onnx_engine(form.name, path, scheme=form.scheme, threads=ctx.threads)
    else:
        made = engines.torch_engine(
            form.name, path, scheme=form.scheme, device=ctx.accelerator.device.type, threads=ctx.threads
        )
    window = ctx.config.teacher.window if form.role in ("teacher", "member") else None
    return replace(made, run=in_windows(made.run, tokenizer, window))
