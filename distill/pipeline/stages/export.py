"""Export stage: for every task, a folder to deploy. A fresh process verifies the outputs of each artifact in it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgspec.structs import replace as replaced

from distill.config import NO_TEACHER, Evaluate, Export
from distill.config.baselines import is_taught
from distill.config.plan import OF_TEACHER, SHARED_HEADS, Step, compared
from distill.config.schemes import SCHEMES, file_of
from distill.data.encode import separator_of
from distill.data.tasks import TaskData
from distill.deploy.export import record, tokenizer
from distill.deploy.export.artifacts import (
    FLOAT,
    Exported,
    File,
    Proof,
    configure,
    exported,
    files_in,
    float_model,
    loads_elsewhere,
    store_check,
    verified,
)
from distill.deploy.export.huggingface import copied, export_folder
from distill.deploy.export.proof import logits_of
from distill.deploy.export.static import add_static
from distill.evaluation.results import Origin, Results
from distill.inference import variants
from distill.models.families import earlier, vectors
from distill.pipeline import artefacts
from distill.pipeline.collect import results
from distill.pipeline.context import Context
from distill.pipeline.context.checkpoints import Checkpoints
from distill.pipeline.origin import origin
from distill.pipeline.runtime import Runtime
from distill.pipeline.stages import embedder
from distill.pipeline.stages.embedder import EmbedderInputs
from distill.pipeline.stages.evaluated import Forms, advised, chosen, entries, forms, load, of_heads
from distill.report import heads_card, model_card, plain_card
from distill.report.variants import folder_name
from distill.runtime import progress
from distill.runtime.storage import atomic
from distill.runtime.versions import cpu_flags

PROOF_ROWS, SMOKE_ROWS = 256, 4
"""Number of a task's rows that verify an export, and under limit=smoke."""


@dataclass(frozen=True)
class ExportInputs:
    """What an export step of the models of tasks reads."""

    name: str
    """Folder of the step, relative to the run folder."""
    role: str
    """What the evaluation calls the exported model: teacher or student."""
    target: str
    """Label of its target; empty if the recipe has one target or none."""
    models: Checkpoints
    shared: bool
    """Whether the models of all tasks have one encoder and are exported together."""
    tasks: dict[str, TaskData]
    quantized: Path | None
    """Folder of the quantized files, of a quantize step or, for the teacher, of the evaluate step; None if only the
    whole models are exported."""
    schemes: list[str]
    teachers: list[Path]
    origin: Origin
    measured: Results | None
    """The results of the evaluation that the step names; None without one."""
    forms: Forms
    """What was measured of the exported model."""
    made_by: list[str]
    """The stages that made the teacher that is exported; empty for a student."""


def inputs(ctx: Context, step: Step) -> ExportInputs | EmbedderInputs:
    if step.embeds:
        return embedder.inputs(ctx, step)
    evaluated = step.source("evaluated")
    measured = results(ctx, evaluated) if isinstance(evaluated, Step) else None
    whole = isinstance(evaluated, Step) and step.start == evaluated.teacher
    students = [each.student for each in compared(evaluated)] if isinstance(evaluated, Step) else []
    role = "teacher" if whole and step.start not in students else "student"
    rows, made_by = forms(measured, role, step.target), list[str]()
    if role == "teacher" and measured is not None:
        rows = advised(measured, folder_name(ctx.folder.path))
        made_by = [source.stage for source in reversed(step.ancestors)]
        measured = replaced(measured, made_from=measured.made_from[: len(ctx.given.teachers)])  # no given student
    if whole and measured is not None:
        # Soft labels in place of a teacher teach too.
        taught = any(is_taught(source.settings, ctx.embeds) for source in step.ancestors[1:])
        measured = replaced(measured, untaught=not (taught or ctx.config.teacher.kind == NO_TEACHER))
    files, schemes = _files(ctx, step, rows)
    return ExportInputs(
        name=step.folder,
        role=role,
        target=step.target,
        models=ctx.models(step.start),
        shared=ctx.shared and not whole,
        tasks=ctx.tasks,
        quantized=files,
        schemes=schemes,
        teachers=[*map(Path, ctx.given.teachers)],
        origin=origin(ctx.given, ctx.recipe, ctx.command, ctx.embeds),
        measured=measured,
        forms=rows,
        made_by=made_by,
    )


def _files(ctx: Context, step: Step, rows: Forms) -> tuple[Path | None, list[str]]:
    """The folder of the quantized files of a step's models, and their schemes. Of a teacher beside its students: those
    from which the forms in `rows` are run."""
    made = step.source("quantized")
    if not isinstance(made, Step):
        return None, []
    if not step.stage.endswith(OF_TEACHER):
        return ctx.folder.of(made), ctx.folder.result(made, artefacts.Quantized).schemes
    run_from = {file_of(*name) for name in rows}
    names = [name for name, scheme in SCHEMES.items() if (scheme.backend, scheme.scheme) in run_from]
    below = variants.TEACHER_FILES if isinstance(made.settings, Evaluate) else "."
    return ctx.folder.of(made) / below, names


def run(inputs: ExportInputs | EmbedderInputs, settings: Export, runtime: Runtime) -> artefacts.Exported:
    """Export every task's model. The folder appears only when all artifacts are verified."""
    if isinstance(inputs, EmbedderInputs):
        return embedder.run(inputs, runtime)
    write = _export_heads if inputs.shared else _export_all
    with atomic.writing(runtime.folder / inputs.name) as temporary:
        return artefacts.Exported(proofs=write(inputs, settings, runtime, temporary))


def _export_all(inputs: ExportInputs, settings: Export, runtime: Runtime, out: Path) -> dict[str, dict[str, Proof]]:
    """Export a folder for each task to `out`. Returns task -> artifact -> its proof."""
    tasks, longest = inputs.tasks, runtime.longest
    rows = SMOKE_ROWS if runtime.limit.smoke else PROOF_ROWS
    texts = {task: _texts(data, rows) for task, data in tasks.items()}
    artifacts = {task: _export(inputs, settings, longest, task, out / task) for task in tasks}
    proofs = _verified(inputs, runtime, [artifact for of_task in artifacts.values() for artifact in of_task], texts)
    for task, data in tasks.items():
        if data.task.kind.separate:
            source = artifacts[task][0].source
            loads_elsewhere(artifacts[task][0], texts[task], longest)
            add_static(
                out / task,
                longest,
                [text for (text,) in texts[task]],
                functools.partial(logits_of, source, texts[task], longest),
            )
        listed = [*entries(inputs.measured, inputs.forms, artifacts[task], proofs[task])]
        tokens = tokenizer.proved(out / task, texts[task], longest)
        record.write(out / task, record.of_task(data.task, longest, listed, _flags(), tokens, load(inputs.measured)))
        store_check(out / task, listed, inputs.models.tokenizer, longest, runtime.machine.threads)
    return proofs


def _export_heads(inputs: ExportInputs, settings: Export, runtime: Runtime, out: Path) -> dict[str, dict[str, Proof]]:
    """Export one folder with a subfolder for each task's model, and the ONNX files with all heads, as `_export_all`."""
    tasks, longest, measured, top = inputs.tasks, runtime.longest, inputs.measured, out / SHARED_HEADS
    rows = max(1, (SMOKE_ROWS if runtime.limit.smoke else PROOF_ROWS) // len(tasks))
    texts = [text for data in tasks.values() for text in _texts(data, rows)]
    heads = [_export_float(inputs, settings, longest, task, top / task) for task in tasks]
    whole = []
    for file in _quantized(inputs, SHARED_HEADS):
        copied(file.made, top / file.path)
        # They have the tokenizer of any head.
        whole.append(exported(SHARED_HEADS, file, heads[0].source.tokenizer, top, heads[0].copy.tokenizer))
    proofs = _verified(inputs, runtime, [*heads, *whole], dict.fromkeys([*tasks, SHARED_HEADS], texts))
    for head in heads:
        own = chosen(inputs.forms, head.task, head.backend, head.scheme)
        agreement = proofs[head.task][head.name].agreement
        entry = record.Entry(head.backend, head.scheme, head.path, agreement=agreement, **own)
        tokens = tokenizer.proved(top / head.task, texts, longest)
        record.write(
            top / head.task, record.of_task(tasks[head.task].task, longest, [entry], _flags(), tokens, load(measured))
        )
    agreement = 1.0 if all(data.task.kind.named for data in tasks.values()) else None
    proofs = {SHARED_HEADS: {FLOAT: Proof(agreement=agreement)} | proofs.pop(SHARED_HEADS, {})} | proofs
    whole = [replace(heads[0], task=SHARED_HEADS), *whole]
    listed = [
        of_heads(entry, inputs.forms, list(tasks))
        for entry in entries(measured, inputs.forms, whole, proofs[SHARED_HEADS])
    ]
    record.write(top, record.Heads(tuple(tasks), tuple(listed), _flags(), load(measured)))
    store_check(top, listed, inputs.models.tokenizer, longest, runtime.machine.threads)
    pairs = any(len(data.task.columns) > 1 for data in tasks.values())
    atomic.write_text(top / "README.md", heads_card(inputs.origin, list(tasks), measured, pairs=pairs))
    return proofs


def _flags() -> str:
    """The flags of this processor."""
    return " ".join(cpu_flags())


def _verified(
    inputs: ExportInputs, runtime: Runtime, artifacts: Sequence[Exported], texts: dict[str, list[list[str]]]
) -> dict[str, dict[str, Proof]]:
    """Task -> artifact -> its proof."""
    runtime.machine.log(f"{inputs.name}: what was written is verified in a fresh process without distill")
    with progress.waiting("verifying"):
        return verified(artifacts, {name: data.task for name, data in inputs.tasks.items()}, texts, runtime.longest)


def _quantized(inputs: ExportInputs, task: str) -> Iterator[File]:
    """The files that the quantize step has for a task, without those that failed when they were measured."""
    if inputs.quantized is not None:
        failed = {name for name, model in inputs.forms.items() if model.failed}
        files = files_in(inputs.quantized / task, inputs.schemes)
        yield from (file for file in files if (file.backend, file.scheme) not in failed)


def _export(inputs: ExportInputs, settings: Export, longest: int, task: str, out: Path) -> list[Exported]:
    """Write one task's folder. Returns its artifacts, the float model first."""
    quantized = [*_quantized(inputs, task)]
    in_float = _export_float(inputs, settings, longest, task, out, quantized)
    return [in_float, *(exported(task, file, in_float.source.tokenizer, out, out) for file in quantized)]


def _export_float(
    inputs: ExportInputs, settings: Export, longest: int, task: str, out: Path, also: Sequence[File] = ()
) -> Exported:
    """Write the folder of a task's whole model, with further files. Returns the float model."""
    source, of_task = inputs.models.folder(task), inputs.tasks[task].task
    modules = [(path, path.name) for path in vectors.stored(source)] if of_task.kind.separate else []
    files = [(file.made, file.path) for file in also]
    export_folder(source, out, _card(inputs, settings, longest, task), [*files, *modules])
    configure(out, of_task, inputs.teachers, longest)
    return exported(task, float_model(source), source, out, out)


def _card(inputs: ExportInputs, settings: Export, longest: int, task: str) -> str:
    """README.md of a task's folder."""
    of_task, measured = inputs.tasks[task].task, inputs.measured
    kind = of_task.kind
    pairs = not kind.separate and (of_task.in_pairs or bool(kind.layout.several))
    use: dict[str, Any] = {
        # What differs before first and second texts has the names of queries and documents in the folder.
        "retrieves": kind.separate and (kind.grouped or len({*of_task.prompts}) > 1),
        "between": separator_of(inputs.models.tokenizer) if pairs else "",
        "needs_5": earlier.needs_5(inputs.models.folder(task)),
    }
    if measured is None:
        return plain_card(inputs.origin, settings.start, task, kind.pipeline, longest, **use)
    return model_card(measured, inputs.target or None, task, kind.pipeline, longest, inputs.made_by, **use)


def _texts(data: TaskData, count: int) -> list[list[str]]:
    """The texts of rows of the task's development split, at most `count`."""
    rows = next(iter(data.development.values()))
    return data.inputs(rows.select(range(min(count, len(rows)))))[:count]
