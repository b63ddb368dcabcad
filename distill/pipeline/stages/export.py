"""Export stage: for every task, a folder to deploy. A fresh process verifies the outputs of each artifact in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from distill.config.plan import SHARED_HEADS, Step
from distill.data.tasks import TaskData
from distill.deploy.export import record
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
from distill.evaluation.results import Results
from distill.models.families import vectors
from distill.pipeline import artefacts
from distill.pipeline.collect import origin
from distill.pipeline.context import Context
from distill.pipeline.stages import embedder
from distill.pipeline.stages.evaluated import entries, measured_of, students, temperature
from distill.report import heads_card, model_card, plain_card
from distill.runtime import progress
from distill.runtime.storage import run_folder
from distill.runtime.versions import cpu_flags

PROOF_ROWS, SMOKE_ROWS = 256, 4
"""Number of a task's rows that verify an export, and under limit=smoke."""


def run(ctx: Context, step: Step) -> artefacts.Exported:
    """Export every task's model. The folder appears only when all artifacts are verified."""
    if step.embeds:
        return embedder.run(ctx, step)
    with run_folder.writing(ctx.folder.of(step)) as temporary:
        return artefacts.Exported(proofs=(_export_heads if ctx.shared else _export_all)(ctx, step, temporary))


def _export_all(ctx: Context, step: Step, out: Path) -> dict[str, dict[str, Proof]]:
    """Export a folder for each task to `out`. Returns task -> artifact -> its proof."""
    tasks, longest, measured = ctx.tasks, ctx.config.tasks.max_length, measured_of(ctx, step)
    texts = {task: _texts(data, _proof_rows(ctx)) for task, data in tasks.items()}
    artifacts = {task: _export(ctx, step, task, out / task, measured) for task in tasks}
    proofs = _verified(ctx, step, [artifact for of_task in artifacts.values() for artifact in of_task], texts)
    for task, data in tasks.items():
        if data.task.kind.separate:
            loads_elsewhere(artifacts[task][0], texts[task], longest)
        listed = [*entries(measured, step, artifacts[task], proofs[task])]
        record.write(out / task, record.of_task(data.task, longest, listed, _flags()))
        store_check(out / task, listed, ctx.tokenizer(step.start), longest, ctx.machine.threads)
    return proofs


def _export_heads(ctx: Context, step: Step, out: Path) -> dict[str, dict[str, Proof]]:
    """Export one folder with a subfolder for each task's model, and the ONNX files with all heads, as `_export_all`."""
    tasks, longest, measured, top = ctx.tasks, ctx.config.tasks.max_length, measured_of(ctx, step), out / SHARED_HEADS
    rows = max(1, _proof_rows(ctx) // len(tasks))
    texts = [text for data in tasks.values() for text in _texts(data, rows)]
    heads = [_export_float(ctx, step, task, top / task, measured) for task in tasks]
    whole = []
    for file in _quantized(ctx, step, SHARED_HEADS, measured):
        copied(file.made, top / file.path)
        # They have the tokenizer of any head.
        whole.append(exported(SHARED_HEADS, file, heads[0].source.tokenizer, top, heads[0].copy.tokenizer))
    proofs = _verified(ctx, step, [*heads, *whole], dict.fromkeys([*tasks, SHARED_HEADS], texts))
    for head in heads:
        chosen = temperature(students(measured, step), head.task, head.backend, head.scheme)
        agreement = proofs[head.task][head.name].agreement
        entry = record.Entry(head.backend, head.scheme, head.path, agreement=agreement, temperature=chosen)
        record.write(top / head.task, record.of_task(tasks[head.task].task, longest, [entry], _flags()))
    agreement = 1.0 if all(data.task.kind.named for data in tasks.values()) else None
    proofs = {SHARED_HEADS: {FLOAT: Proof(agreement=agreement)} | proofs.pop(SHARED_HEADS, {})} | proofs
    whole = [replace(heads[0], task=SHARED_HEADS), *whole]
    listed = [*entries(measured, step, whole, proofs[SHARED_HEADS])]
    record.write(top, record.Heads(tuple(tasks), tuple(listed), _flags()))
    store_check(top, listed, ctx.tokenizer(step.start), longest, ctx.machine.threads)
    run_folder.write_text(top / "README.md", heads_card(origin(ctx), list(tasks), measured))
    return proofs


def _proof_rows(ctx: Context) -> int:
    """Number of a task's rows that verify an export."""
    return SMOKE_ROWS if ctx.config.limit.smoke else PROOF_ROWS


def _flags() -> str:
    """The flags of this processor."""
    return " ".join(cpu_flags())


def _verified(
    ctx: Context, step: Step, artifacts: Sequence[Exported], texts: dict[str, list[list[str]]]
) -> dict[str, dict[str, Proof]]:
    """Task -> artifact -> its proof."""
    ctx.machine.log(f"{step.folder}: {len(artifacts)} artifacts are verified in a fresh process without distill")
    with progress.waiting("verifying"):
        tasks = {name: data.task for name, data in ctx.tasks.items()}
        return verified(artifacts, tasks, texts, ctx.config.tasks.max_length)


def _quantized(ctx: Context, step: Step, task: str, measured: Results | None) -> Iterator[File]:
    """The files that the quantize step has for a task, without those that failed when they were measured."""
    quantized = step.source("quantized")
    if isinstance(quantized, Step):
        failed = {name for name, model in students(measured, step).items() if model.failed}
        files = files_in(ctx.folder.of(quantized) / task, ctx.folder.result(quantized, artefacts.Quantized).schemes)
        yield from (file for file in files if (file.backend, file.scheme) not in failed)


def _export(ctx: Context, step: Step, task: str, out: Path, measured: Results | None) -> list[Exported]:
    """Write one task's folder. Returns its artifacts, the float model first."""
    quantized = [*_quantized(ctx, step, task, measured)]
    in_float = _export_float(ctx, step, task, out, measured, quantized)
    return [in_float, *(exported(task, file, in_float.source.tokenizer, out, out) for file in quantized)]


def _export_float(
    ctx: Context, step: Step, task: str, out: Path, measured: Results | None, also: Sequence[File] = ()
) -> Exported:
    """Write the folder of a task's whole model, with further files. Returns the float model."""
    source, kind = ctx.checkpoint(step.start, task), ctx.tasks[task].task.kind
    modules = [(path, path.name) for path in vectors.stored(source)] if kind.separate else []
    files = [(file.made, file.path) for file in also]
    export_folder(source, out, _card(ctx, step, task, measured), [*files, *modules])
    configure(out, ctx.tasks[task].task, [*map(Path, ctx.given.teachers)], ctx.config.tasks.max_length)
    return exported(task, float_model(source), source, out, out)


def _card(ctx: Context, step: Step, task: str, measured: Results | None) -> str:
    """README.md of a task's folder."""
    does, longest = ctx.tasks[task].task.kind.pipeline, ctx.config.tasks.max_length
    if measured is None:
        return plain_card(origin(ctx), step.settings.start, task, does, longest)
    return model_card(measured, step.target or None, task, does, longest)


def _texts(data: TaskData, count: int) -> list[list[str]]:
    """The texts of rows of the task's development split, at most `count`."""
    rows = next(iter(data.development.values()))
    return data.inputs(rows.select(range(min(count, len(rows)))))[:count]
