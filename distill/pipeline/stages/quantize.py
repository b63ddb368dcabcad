"""Quantize stage: every task's model in each scheme, and the float32 ONNX file that some schemes quantize."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from distill.compression.quantization.quality_limits import Source, limits_of, source_of
from distill.config import Quantize
from distill.config.plan import SHARED_HEADS, Step
from distill.config.plan import Source as Start
from distill.config.schemes import ONNX
from distill.deploy.export.quantized import Files, quantized
from distill.pipeline.artefacts import Quantized
from distill.pipeline.context import Context
from distill.runtime.storage import run_folder, structs


def run(ctx: Context, step: Step) -> Quantized:
    """Quantize every task's model with every scheme of the settings."""
    settings: Quantize = step.settings
    return quantize_models(ctx, Models(step.start, ctx.folder.of(step), step.folder, settings, tuple(settings.schemes)))


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


def quantize_models(ctx: Context, models: Models, tasks: Sequence[str] | None = None) -> Quantized:
    """Quantize the models of `tasks`, by default all, that are not finished, each into a folder named after its task.

    Models with one encoder become one file.
    """
    one_encoder = isinstance(models.start, Step) and ctx.shares_encoder(models.start.settings)
    parts = {SHARED_HEADS: list(ctx.tasks)} if one_encoder else {task: [task] for task in tasks or ctx.tasks}
    made = {}
    for part, names in parts.items():
        folder, label = models.folder / part, f"{models.name}/{part}"
        if not run_folder.finished(folder):
            ctx.machine.log(f"{label}: {', '.join(models.schemes) or ONNX}")
            with run_folder.writing(folder) as temporary:
                files = _written(ctx, models, names, one_encoder, temporary, label)
                structs.write(temporary / run_folder.MANIFEST, files)
        made[part] = structs.read(folder / run_folder.MANIFEST, Files)
    return Quantized(
        schemes=list(models.schemes),
        failed={scheme: f"{part}: {text}" for part, files in made.items() for scheme, text in files.failed.items()},
        kept={part: files.kept for part, files in made.items()},
        development={task: scores for files in made.values() for task, scores in files.development.items()},
    )


def _written(ctx: Context, models: Models, tasks: Sequence[str], one_encoder: bool, out: Path, name: str) -> Files:
    """Write the model of one task, or of several tasks with one encoder, to `out`."""
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
