"""Quantize stage: every task's model in each scheme, and the float32 ONNX file that some schemes quantize."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from distill.compression.quantization.quality_limits import (
    Floats,
    Limits,
    Made,
    Source,
    guarded,
    guarded_heads,
    remove,
    source_of,
)
from distill.config import Quantize
from distill.config.plan import SHARED_HEADS, Step
from distill.config.plan import Source as Start
from distill.config.schemes import ONNX, SCHEMES, Scheme
from distill.data.task import Task
from distill.deploy.export.onnx import export_heads, export_onnx, heads_parity, onnx_parity
from distill.errors import reason
from distill.pipeline.context import Context
from distill.runtime import progress
from distill.runtime.machine import Machine
from distill.runtime.storage import run_folder

FLOAT32 = "float32"
"""Key of the score of the float model, beside the keys of schemes."""


def run(ctx: Context, step: Step) -> dict[str, Any]:
    """Quantize every task's model with every scheme of the settings. Returns the manifest."""
    settings: Quantize = step.settings
    began = time.monotonic()
    models = Models(step.start, ctx.folder.of(step), step.folder, settings, tuple(settings.schemes))
    return made(ctx, models) | {"schemes": settings.schemes, "seconds": time.monotonic() - began}


@dataclass(frozen=True)
class Models:
    """The models of a step that are quantized, and where they are written."""

    start: Start
    folder: Path
    name: str
    """Name of the folder in messages."""
    settings: Quantize
    schemes: tuple[str, ...]
    member: int = 0
    """Index of the teacher in an ensemble."""
    limited: bool = True
    """Whether a scheme that loses more than the limits of the settings leaves modules in float or fails."""
    onnx: bool = False
    """Whether the float32 ONNX file is written even if no scheme needs it."""


def made(ctx: Context, models: Models, tasks: Sequence[str] | None = None) -> dict[str, Any]:
    """Quantize the models of `tasks`, by default all, that are not finished, each into a folder named after its task.

    Models with one encoder become one file. Returns which schemes failed, which modules each model keeps in float, and
    the scores on development rows: task -> `float32` or scheme -> points, for the schemes that were scored.
    """
    one_encoder = isinstance(models.start, Step) and ctx.shares_encoder(models.start.settings)
    parts = {SHARED_HEADS: list(ctx.tasks)} if one_encoder else {task: [task] for task in tasks or ctx.tasks}
    manifests = {}
    for part, names in parts.items():
        folder, label = models.folder / part, f"{models.name}/{part}"
        if not run_folder.finished(folder):
            ctx.machine.log(f"{label}: {', '.join(models.schemes) or ONNX}")
            with run_folder.writing(folder) as temporary:
                manifest = _written(ctx, models, names, one_encoder, temporary, label)
                run_folder.write_json(temporary / run_folder.MANIFEST, manifest)
        manifests[part] = run_folder.read_json(folder / run_folder.MANIFEST)
    return {
        "failed": {scheme: f"{part}: {text}" for part, m in manifests.items() for scheme, text in m["failed"].items()},
        "kept": {part: m["kept"] for part, m in manifests.items()},
        "onnx_difference": {part: m.get("onnx_difference") for part, m in manifests.items()},
        "development": {task: scores for m in manifests.values() for task, scores in m.get("development", {}).items()},
    }


def _written(
    ctx: Context, models: Models, tasks: Sequence[str], one_encoder: bool, out: Path, name: str
) -> dict[str, Any]:
    """Write the model of one task, or of several tasks with one encoder, to `out`. Returns its manifest."""
    sources = [_source(ctx, models, task) for task in tasks]
    smoke = ctx.config.limit.smoke or not models.limited
    limits = [limits_of(models.settings, ctx.tasks[task].task, smoke) for task in tasks]
    schemes = list(models.schemes)
    if one_encoder:
        return quantized_heads(schemes, sources, out, limits, ctx.machine, name, models.onnx)
    return quantized(schemes, sources[0], out, limits[0], ctx.machine, name, models.onnx)


def _source(ctx: Context, models: Models, task: str) -> Source:
    """The checkpoint of a task with its data."""
    start, tokenizer = ctx.checkpoints(models.start, task)[models.member], ctx.tokenizer(models.start, models.member)
    if not models.schemes:
        return Source(start, tokenizer, ctx.tasks[task], [], {})
    settings, longest = models.settings, ctx.config.tasks.max_length
    return source_of(start, tokenizer, ctx.tasks[task], settings.examples, longest, ctx.config.seed)


def limits_of(settings: Quantize, task: Task, smoke: bool) -> Limits:
    """The maximum loss of a variant. There is no maximum under limit=smoke, and on a task that is not in the
    headline."""
    return Limits() if smoke or not task.in_headline else Limits(settings.max_drop, settings.max_recall_drop)


def quantized(
    schemes: list[str],
    source: Source,
    out: Path,
    limits: Limits,
    machine: Machine,
    name: str,
    onnx: bool = False,
) -> dict[str, Any]:
    """Write a task's model in every scheme to `out`, and with `onnx` the float32 ONNX file in any case.

    Returns the manifest, which names schemes that failed and why.
    """
    log, floats = functools.partial(_log, machine, name), functools.cache(lambda: Floats(machine, source))

    def exported() -> float:
        export_onnx(source.folder, out / ONNX)
        return onnx_parity(source.folder, out / ONNX)

    return _attempted(
        schemes,
        out,
        exported,
        lambda scheme: guarded(scheme, source, out, floats(), limits, log),
        lambda: [floats()],
        onnx,
    )


def quantized_heads(
    schemes: list[str],
    sources: list[Source],
    out: Path,
    limits: list[Limits],
    machine: Machine,
    name: str,
    onnx: bool = False,
) -> dict[str, Any]:
    """As `quantized`, for the models of several tasks with one encoder, as one file. `limits`: of each task."""
    log = functools.partial(_log, machine, name)
    floats = functools.cache(lambda: [Floats(machine, source) for source in sources])
    folders = {source.data.task.name: source.folder for source in sources}

    def exported() -> float:
        export_heads(folders, out / ONNX)
        return heads_parity(folders, out / ONNX)

    return _attempted(
        schemes,
        out,
        exported,
        lambda scheme: guarded_heads(scheme, out, floats(), limits, log),
        floats,
        onnx,
    )


def _attempted(
    schemes: list[str],
    out: Path,
    exported: Callable[[], float],
    quantize: Callable[[Scheme], Made],
    floats: Callable[[], list[Floats]],
    onnx: bool,
) -> dict[str, Any]:
    """Export the ONNX file if a scheme or `onnx` demands it, and quantize with every scheme. Returns the manifest."""
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

    manifest: dict[str, Any] = {"failed": failed}
    if onnx or any(SCHEMES[scheme].onnx for scheme in schemes):
        with progress.waiting("exporting to ONNX"):
            manifest["onnx_difference"] = attempt(ONNX, ONNX, exported)
    found: dict[str, Made] = {}
    for label in schemes:
        scheme = SCHEMES[label]
        if scheme.onnx and ONNX in failed:
            failed[label] = failed[ONNX]
        elif (made := attempt(label, scheme.file, functools.partial(quantize, scheme))) is not None:
            found[label] = made
    kept = {label: made.floats for label, made in found.items() if made.floats}
    return manifest | {"kept": kept, "development": _development(found, floats)}


def _development(made: dict[str, Made], floats: Callable[[], list[Floats]]) -> dict[str, dict[str, float]]:
    """Task -> `FLOAT32` and schemes -> score on the development rows; empty if no scheme was scored."""
    scored = {label: each.scores for label, each in made.items() if each.scores}
    return {
        each.source.data.task.name: {FLOAT32: each.quality.score, **{label: of[at] for label, of in scored.items()}}
        for at, each in enumerate(floats() if scored else [])
    }


def _log(machine: Machine, name: str, text: str) -> None:
    machine.log(f"{name}: {text}")
