"""Quantize stage: every task's model in each scheme, and the float32 ONNX file that some schemes quantize."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from distill.runtime.storage import run_folder, structs


@dataclass(frozen=True)
class QuantizeInputs:
    """What a quantize step reads."""

    name: str
    """Folder of the step, relative to the run folder."""
    models: Checkpoints
    tasks: dict[str, TaskData]
    one_encoder: bool
    """Whether the models of all tasks have one encoder."""


def inputs(ctx: Context, step: Step) -> QuantizeInputs:
    """What a quantize step reads."""
    shared = isinstance(step.start, Step) and ctx.shares_encoder(step.start.settings)
    return QuantizeInputs(step.folder, ctx.models(step.start), ctx.tasks, shared)


def run(inputs: QuantizeInputs, settings: Quantize, runtime: Runtime) -> Quantized:
    """Quantize every task's model with every scheme of the settings."""
    wanted = Quantization(inputs.name, inputs.models, inputs.one_encoder, settings, tuple(settings.schemes))
    return quantize_models(wanted, inputs.tasks, runtime)


@dataclass(frozen=True)
class Quantization:
    """The models that are quantized, how, and where they are written."""

    name: str
    """Folder for them, relative to the run folder."""
    models: Checkpoints
    one_encoder: bool
    """Whether the models of all tasks have one encoder."""
    settings: Quantize
    schemes: tuple[str, ...]
    member: int = 0
    """Index of the teacher in an ensemble."""
    limited: bool = True
    """Whether a scheme that loses more than the limits of the settings leaves modules in float or fails."""
    onnx: bool = False
    """Whether the float32 ONNX file is written even if no scheme needs it."""


def quantize_models(wanted: Quantization, tasks: Mapping[str, TaskData], runtime: Runtime) -> Quantized:
    """Quantize the models of `tasks` that are not finished, each into a folder named after its task.

    Models with one encoder become one file.
    """
    parts = {SHARED_HEADS: list(tasks.values())} if wanted.one_encoder else {t: [data] for t, data in tasks.items()}
    made = {}
    for part, of_part in parts.items():
        label = f"{wanted.name}/{part}"
        folder = runtime.folder / label
        if not run_folder.finished(folder):
            runtime.machine.log(f"{label}: {', '.join(wanted.schemes) or ONNX}")
            with run_folder.writing(folder) as temporary:
                files = _written(wanted, of_part, runtime, temporary, label)
                structs.write(temporary / run_folder.MANIFEST, files)
        made[part] = structs.read(folder / run_folder.MANIFEST, Files)
    return Quantized(
        schemes=list(wanted.schemes),
        failed={scheme: f"{part}: {text}" for part, files in made.items() for scheme, text in files.failed.items()},
        kept={part: files.kept for part, files in made.items()},
        development={task: scores for files in made.values() for task, scores in files.development.items()},
    )


def _written(wanted: Quantization, tasks: Sequence[TaskData], runtime: Runtime, out: Path, label: str) -> Files:
    """Write the model of one task, or of several tasks with one encoder, to `out`."""
    settings, smoke, machine = wanted.settings, runtime.limit.smoke or not wanted.limited, runtime.machine
    return quantized(
        wanted.schemes,
        [_source(wanted, data, runtime) for data in tasks],
        out,
        [limits_of(settings.max_drop, settings.max_recall_drop, data.task, smoke) for data in tasks],
        machine,
        lambda text: machine.log(f"{label}: {text}"),
        one_encoder=wanted.one_encoder,
        onnx=wanted.onnx,
    )


def _source(wanted: Quantization, data: TaskData, runtime: Runtime) -> Source:
    """The checkpoint of a task with its data."""
    models, member = wanted.models, wanted.member
    folder, tokenizer = models.folder(data.task.name, member), models.tokenizers[member]
    if not wanted.schemes:
        return Source(folder, tokenizer, data, [], {})
    return source_of(folder, tokenizer, data, wanted.settings.examples, runtime.longest, runtime.seed)
