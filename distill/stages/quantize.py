"""Quantize stage: every task's model in each scheme, and the float32 ONNX file that some schemes quantize."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from distill import checkpoint
from distill.compress.guard import Floats, Limits, Source, guarded, remove, source_of
from distill.config import Quantize
from distill.context import Context
from distill.errors import reason
from distill.evaluate import retained
from distill.export.onnx import export_onnx, onnx_parity
from distill.machine import Machine
from distill.plan import Step
from distill.schemes import ONNX, SCHEMES


def run(ctx: Context, step: Step) -> dict[str, Any]:
    """Quantize every task's model with every scheme of the settings. Returns the manifest."""
    settings: Quantize = step.settings
    began, manifests = time.monotonic(), {}
    for task, data in ctx.tasks.items():
        folder, name = ctx.folder.of(step) / task, f"{step.folder}/{task}"
        if not checkpoint.finished(folder):
            ctx.machine.log(f"{name}: {', '.join(settings.schemes)}")
            longest, seed = ctx.config.tasks.max_length, ctx.config.seed
            start, tokenizer = ctx.checkpoint(step.start, task), ctx.tokenizer(step.start)
            source = source_of(start, tokenizer, data, settings.examples, longest, seed)
            limits = limits_of(settings, task, ctx.config.limit.smoke)
            with checkpoint.writing(folder) as temporary:
                manifest = quantized(settings.schemes, source, temporary, limits, ctx.machine, name)
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


def limits_of(settings: Quantize, task: str, smoke: bool) -> Limits:
    """What a variant may lose: anything under limit=smoke and on WNLI, whose scores are mostly noise."""
    return Limits() if smoke or task == retained.NOISE else Limits(settings.max_drop, settings.max_recall_drop)


def quantized(
    schemes: list[str], source: Source, out: Path, limits: Limits, machine: Machine, name: str
) -> dict[str, Any]:
    """Write a task's model in every scheme to `out`. Returns the manifest, which names schemes that failed and why."""
    failed, floats = dict[str, str](), Floats(machine, source)

    def attempt(scheme: str, file: str, quantize: Callable[[], Any]) -> Any:
        try:
            return quantize()
        except (OSError, SafetensorError):  # such as a full disk, which is no failure of the scheme
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
        manifest["onnx_difference"] = attempt(ONNX, ONNX, exported)
    for label in schemes:
        scheme, log = SCHEMES[label], functools.partial(_log, machine, name)
        quantize = functools.partial(guarded, scheme, source, out, floats, limits, log)
        if scheme.onnx and ONNX in failed:
            failed[label] = failed[ONNX]
        elif in_float := attempt(label, scheme.file, quantize):
            manifest["kept"][label] = in_float
    return manifest


def _log(machine: Machine, name: str, text: str) -> None:
    machine.log(f"{name}: {text}")
