"""Quantize stage: every task's model in each scheme, and the float32 ONNX file that some schemes quantize."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from distill import checkpoint
from distill.compress.guard import Floats, Limits, Source, guarded, guarded_heads, remove, source_of
from distill.config import Quantize
from distill.context import Context
from distill.data.tasks import TaskData
from distill.errors import reason
from distill.evaluate import retained
from distill.export.onnx import export_heads, export_onnx, heads_parity, onnx_parity
from distill.machine import Machine
from distill.plan import SHARED_HEADS, Step
from distill.schemes import ONNX, SCHEMES, Scheme


def run(ctx: Context, step: Step) -> dict[str, Any]:
    """Quantize every task's model with every scheme of the settings. Returns the manifest."""
    settings: Quantize = step.settings
    began, manifests = time.monotonic(), {}
    if ctx.shared:
        return _of_step(settings, {SHARED_HEADS: _heads(ctx, step, settings)}, began)
    for task, data in ctx.tasks.items():
        folder, name = ctx.folder.of(step) / task, f"{step.folder}/{task}"
        if not checkpoint.finished(folder):
            ctx.machine.log(f"{name}: {', '.join(settings.schemes)}")
            source = _source(ctx, step, settings, task, data)
            limits = limits_of(settings, task, ctx.config.limit.smoke)
            with checkpoint.writing(folder) as temporary:
                manifest = quantized(settings.schemes, source, temporary, limits, ctx.machine, name)
                checkpoint.write_json(temporary / checkpoint.MANIFEST, manifest)
        manifests[task] = checkpoint.read_json(folder / checkpoint.MANIFEST)
    return _of_step(settings, manifests, began)


def _heads(ctx: Context, step: Step, settings: Quantize) -> dict[str, Any]:
    """Quantize the one file with the heads of all tasks. Returns its manifest."""
    folder, name = ctx.folder.of(step) / SHARED_HEADS, f"{step.folder}/{SHARED_HEADS}"
    if not checkpoint.finished(folder):
        ctx.machine.log(f"{name}: {', '.join(settings.schemes)}")
        sources = [_source(ctx, step, settings, task, data) for task, data in ctx.tasks.items()]
        limits = [limits_of(settings, task, ctx.config.limit.smoke) for task in ctx.tasks]
        with checkpoint.writing(folder) as temporary:
            manifest = quantized_heads(settings.schemes, sources, temporary, limits, ctx.machine, name)
            checkpoint.write_json(temporary / checkpoint.MANIFEST, manifest)
    stored: dict[str, Any] = checkpoint.read_json(folder / checkpoint.MANIFEST)
    return stored


def _source(ctx: Context, step: Step, settings: Quantize, task: str, data: TaskData) -> Source:
    """The checkpoint of a task with its data."""
    start, tokenizer = ctx.checkpoint(step.start, task), ctx.tokenizer(step.start)
    return source_of(start, tokenizer, data, settings.examples, ctx.config.tasks.max_length, ctx.config.seed)


def _of_step(settings: Quantize, manifests: dict[str, dict[str, Any]], began: float) -> dict[str, Any]:
    """The step's manifest, from those of its models by their names."""
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
    floats, log = Floats(machine, source), functools.partial(_log, machine, name)

    def exported() -> float:
        export_onnx(source.folder, out / ONNX)
        return onnx_parity(source.folder, out / ONNX)

    return _attempted(schemes, out, exported, lambda scheme: guarded(scheme, source, out, floats, limits, log))


def quantized_heads(
    schemes: list[str], sources: list[Source], out: Path, limits: list[Limits], machine: Machine, name: str
) -> dict[str, Any]:
    """As `quantized`, for the models of several tasks with one encoder, as one file. `limits`: those of each task."""
    floats, log = [Floats(machine, source) for source in sources], functools.partial(_log, machine, name)
    folders = {source.data.task.name: source.folder for source in sources}

    def exported() -> float:
        export_heads(folders, out / ONNX)
        return heads_parity(folders, out / ONNX)

    return _attempted(schemes, out, exported, lambda scheme: guarded_heads(scheme, out, floats, limits, log))


def _attempted(
    schemes: list[str], out: Path, exported: Callable[[], float], quantize: Callable[[Scheme], list[str]]
) -> dict[str, Any]:
    """Export the ONNX file if a scheme needs it, and quantize with every scheme. Returns the manifest."""
    failed = dict[str, str]()

    def attempt(scheme: str, file: str, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except (OSError, SafetensorError):  # such as a full disk, which is no failure of the scheme
            raise
        except Exception as error:
            remove(out / file)
            failed[scheme] = reason(error)
            return None

    manifest: dict[str, Any] = {"failed": failed, "kept": {}}
    if any(SCHEMES[scheme].onnx for scheme in schemes):
        manifest["onnx_difference"] = attempt(ONNX, ONNX, exported)
    for label in schemes:
        scheme = SCHEMES[label]
        if scheme.onnx and ONNX in failed:
            failed[label] = failed[ONNX]
        elif in_float := attempt(label, scheme.file, functools.partial(quantize, scheme)):
            manifest["kept"][label] = in_float
    return manifest


def _log(machine: Machine, name: str, text: str) -> None:
    machine.log(f"{name}: {text}")
