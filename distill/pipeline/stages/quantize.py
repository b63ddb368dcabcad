"""Quantize stage: every task's model in each scheme, and the float32 ONNX file that some schemes quantize."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distill.compression.quantization.quality_limits import Source, limits_of, source_of
from distill.config import Quantize
from distill.config.plan import SHARED_HEADS, Step
from distill.config.plan import Source as Start
from distill.config.schemes import ONNX
from distill.deploy.export.quantized import quantized
from distill.pipeline.context import Context
from distill.runtime.storage import run_folder


def run(ctx: Context, step: Step) -> dict[str, Any]:
    """Quantize every task's model with every scheme of the settings. Returns the manifest."""
    settings: Quantize = step.settings
    began = time.monotonic()
    models = Models(step.start, ctx.folder.of(step), step.folder, settings, tuple(settings.schemes))
    return quantize_models(ctx, models) | {"schemes": settings.schemes, "seconds": time.monotonic() - began}


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


def quantize_models(ctx: Context, models: Models, tasks: Sequence[str] | None = None) -> dict[str, Any]:
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
    settings, smoke = models.settings, ctx.config.limit.smoke or not models.limited
    return quantized(
        models.schemes,
        [_source(ctx, models, task) for task in tasks],
        out,
        [limits_of(settings.max_drop, settings.max_recall_drop, ctx.tasks[task].task, smoke) for task in tasks],
        ctx.machine,
        lambda text: ctx.machine.log(f"{name}: {text}"),
        one_encoder=one_encoder,
        onnx=models.onnx,
    )


def _source(ctx: Context, models: Models, task: str) -> Source:
    """The checkpoint of a task with its data."""
    start, tokenizer = ctx.checkpoints(models.start, task)[models.member], ctx.tokenizer(models.start, models.member)
    if not models.schemes:
        return Source(start, tokenizer, ctx.tasks[task], [], {})
    settings, longest = models.settings, ctx.config.tasks.max_length
    return source_of(start, tokenizer, ctx.tasks[task], settings.examples, longest, ctx.config.seed)
