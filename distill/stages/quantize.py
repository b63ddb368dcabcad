"""Quantize stage: the student of every task in fewer bits, and the float32 ONNX file that some schemes start from."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from distill import checkpoint
from distill.compress.guard import Floats, Source, guarded, remove, source_of
from distill.config import Quantize
from distill.context import Context
from distill.errors import reason
from distill.evaluate import retained
from distill.export.onnx import export_onnx, onnx_parity
from distill.machine import Machine
from distill.plan import Step
from distill.schemes import ONNX, SCHEMES


def run(ctx: Context, step: Step) -> dict[str, Any]:
    """Quantize every task's model by every scheme that is asked for. Returns the manifest."""
    settings: Quantize = step.settings
    began, manifests = time.monotonic(), {}
    for task, data in ctx.tasks.items():
        folder, name = ctx.folder.of(step) / task, f"{step.folder}/{task}"
        if not checkpoint.finished(folder):
            ctx.machine.say(f"{name}: {', '.join(settings.schemes)}")
            longest, seed = ctx.config.tasks.max_length, ctx.config.seed
            start, tokenizer = ctx.checkpoint(step.start, task), ctx.tokenizer(step.start)
            source = source_of(start, tokenizer, data, settings.examples, longest, seed)
            limit = allowed_drop(settings, task, ctx.config.limit.smoke)
            with checkpoint.writing(folder) as temporary:
                manifest = quantized(settings.schemes, source, temporary, limit, ctx.machine, name)
                checkpoint.write_json(temporary / checkpoint.MANIFEST, manifest)
        manifests[task] = checkpoint.read_json(folder / checkpoint.MANIFEST)
    failed = {scheme: f"{task}: {text}" for task, m in manifests.items() for scheme, text in m["failed"].items()}
    return {
        "schemes": settings.schemes,
        "failed": failed,
        "kept": {task: m["kept"] for task, m in manifests.items()},
        "onnx_difference": {task: m.get("onnx_difference") for task, m in manifests.items()},
        "seconds": time.monotonic() - began,
    }


def allowed_drop(settings: Quantize, task: str, smoke: bool) -> float | None:
    """Points that a variant may lose; None where the score separates nothing: under limit=smoke, and on WNLI."""
    return None if smoke or task == retained.NOISE else settings.max_drop


def quantized(
    schemes: list[str], source: Source, out: Path, limit: float | None, machine: Machine, name: str
) -> dict[str, Any]:
    """Every scheme of a task's model, in `out`. One that fails is kept with its reason: it is a row of the report."""
    failed, floats = dict[str, str](), Floats(machine, source)

    def tried(scheme: str, file: str, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except (OSError, SafetensorError):  # a full disk is not the scheme's fault
            raise
        except Exception as error:
            remove(out / file)
            failed[scheme] = reason(error)
            return None

    def exported() -> float:
        export_onnx(source.folder, out / ONNX)
        return onnx_parity(source.folder, out / ONNX)

    manifest: dict[str, Any] = {"failed": failed, "kept": {}}
    if any(SCHEMES[scheme].onnx for scheme in schemes):
        manifest["onnx_difference"] = tried(ONNX, ONNX, exported)
    for label in schemes:
        scheme, say = SCHEMES[label], functools.partial(_said, machine, name)
        if scheme.onnx and ONNX in failed:
            failed[label] = failed[ONNX]
        elif kept := tried(label, scheme.file, functools.partial(guarded, scheme, source, out, floats, limit, say)):
            manifest["kept"][label] = kept
    return manifest


def _said(machine: Machine, name: str, text: str) -> None:
    machine.say(f"{name}: {text}")
