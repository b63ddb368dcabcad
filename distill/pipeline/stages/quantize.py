"""Quantize stage: every task's model in each scheme, and the float32 ONNX file that some schemes quantize."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from distill.compression.quantization.quality_limits import Source, limits_of, source_of
from distill.config import Quantize
from distill.config.plan import SHARED_HEADS, Step
from distill.config.schemes import ONNX
from distill.data.tasks import TaskData
from distill.deploy.export.quantized import Files, quantized
from distill.pipeline.artefacts import Quantized
from distill.pipeline.context import Context
from distill.pipeline.context.checkpoints import Checkpoints
from distill.pipeline.runtime import Runtime
from distill.runtime.storage import atomic, run_folder, structs


@dataclass(frozen=True)
class QuantizeInputs:
    """The models that are quantized, and where they are written."""

    name: str
    """Folder for them, relative to the run folder."""
    models: Checkpoints
    tasks: dict[str, TaskData]
    one_encoder: bool
    """Whether the models of all tasks have one encoder."""
    member: int = 0
    """Index of the teacher in an ensemble."""
    limited: bool = True
    """Whether a scheme that loses more than the limits of the settings leaves modules in float or fails."""
    onnx: bool = False
    """Whether the float32 ONNX file is written even if no scheme needs it."""


def inputs(ctx: Context, step: Step) -> QuantizeInputs:
    shared = isinstance(step.start, Step) and ctx.shares_encoder(step.start.settings)
    return QuantizeInputs(step.folder, ctx.models(step.start), ctx.tasks, shared)


def run(inputs: QuantizeInputs, settings: Quantize, runtime: Runtime) -> Quantized:
    """Quantize every task's model that is not finished, with every scheme of the settings, into a folder named after
    its task.

    Models with one encoder become one file.
    """
    every = inputs.tasks
    parts = {SHARED_HEADS: list(every.values())} if inputs.one_encoder else {task: [every[task]] for task in every}
    made = {}
    for part, of_part in parts.items():
        label = f"{inputs.name}/{part}"
        folder = runtime.folder / label
        if not run_folder.finished(folder):
            runtime.machine.log(f"{label}: {', '.join(settings.schemes) or ONNX}")
            with atomic.writing(folder) as temporary:
                files = _written(inputs, settings, runtime, of_part, temporary, label)
                structs.write(temporary / run_folder.MANIFEST, files)
        made[part] = structs.read(folder / run_folder.MANIFEST, Files)
    return Quantized(
        schemes=list(settings.schemes),
        failed={scheme: f"{part}: {text}" for part, files in made.items() for scheme, text in files.failed.items()},
        kept={part: files.kept for part, files in made.items()},
        development={task: scores for files in made.values() for task, scores in files.development.items()},
    )


def _written(
    inputs: QuantizeInputs, settings: Quantize, runtime: Runtime, tasks: Sequence[TaskData], out: Path, label: str
) -> Files:
    """Write the model of one task, or of several tasks with one encoder, to `out`."""
    smoke, machine = runtime.limit.smoke or not inputs.limited, runtime.machine
    return quantized(
        settings.schemes,
        [_source(inputs, settings, runtime, data) for data in tasks],
        out,
        [limits_of(settings.max_drop, settings.max_recall_drop, data.task, smoke) for data in tasks],
        machine,
        lambda text: machine.log(f"{label}: {text}"),
        one_encoder=inputs.one_encoder,
        onnx=inputs.onnx,
    )


def _source(inputs: QuantizeInputs, settings: Quantize, runtime: Runtime, data: TaskData) -> Source:
    """The checkpoint of a task with its data."""
    models, member = inputs.models, inputs.member
    folder, tokenizer = models.folder(data.task.name, member), models.tokenizers[member]
    if not settings.schemes:
        return Source(folder, tokenizer, data, [], {})
    return source_of(folder, tokenizer, data, settings.examples, runtime.longest, runtime.seed)
