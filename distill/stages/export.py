"""Export stage: for every task, a folder to deploy. A fresh process verifies the outputs of each artifact in it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distill import checkpoint
from distill.backends import BACKENDS
from distill.config import Export
from distill.context import Context
from distill.data.task import Task
from distill.data.tasks import TaskData
from distill.evaluate.metrics import accuracy
from distill.export import onnx
from distill.export.huggingface import export_folder
from distill.export.proof import Artifact, difference, fresh, logits_of
from distill.plan import Step
from distill.report import model_card, plain_card
from distill.results import origin, results
from distill.schemes import ONNX, SCHEMES
from distill.stages import embedder

PROOF_ROWS, SMOKE_ROWS = 256, 4
"""Number of a task's rows that verify an export, and under limit=smoke."""
FLOAT_ONNX = "onnxruntime fp32"
"""Backend and scheme of the float32 ONNX file."""


@dataclass(frozen=True)
class Exported:
    """One artifact of a task's model."""

    task: str
    name: str
    """Its backend and scheme."""
    source: Artifact
    """The artifact in the folder of the step that produced it."""
    copy: Artifact
    """The artifact in the exported folder."""


def run(ctx: Context, step: Step) -> dict[str, Any]:
    """Export every task's model. The folder appears only when all artifacts are verified. Returns the manifest."""
    if step.embeds:
        return embedder.run(ctx, step)
    began, tasks = time.monotonic(), ctx.tasks
    count, longest = SMOKE_ROWS if ctx.config.limit.smoke else PROOF_ROWS, ctx.config.tasks.max_length
    texts = {task: _texts(data, count) for task, data in tasks.items()}
    with checkpoint.writing(ctx.folder.of(step)) as temporary:
        exported = [artifact for task in tasks for artifact in _export(ctx, step, task, temporary / task)]
        ctx.machine.log(f"{step.folder}: {len(exported)} artifacts are verified in a fresh process without distill")
        proofs = _verified(exported, tasks, texts, longest)
        manifest = {"proofs": proofs, "seconds": time.monotonic() - began}
        checkpoint.write_json(temporary / checkpoint.MANIFEST, manifest)
    return manifest


def _verified(
    exported: list[Exported], tasks: dict[str, TaskData], texts: dict[str, list[list[str]]], longest: int
) -> dict[str, dict[str, Any]]:
    """Task -> artifact -> difference of its logits in a fresh process from those of its source and of the float model.

    Raises:
        UserError: if a difference is too large.
    """
    texts_of_folder = {artifact.copy.tokenizer: texts[artifact.task] for artifact in exported}
    with ThreadPoolExecutor(1) as pool:
        fresh_process = pool.submit(fresh, [artifact.copy for artifact in exported], texts_of_folder, longest, True)
        expected_logits = [logits_of(artifact.source, texts[artifact.task], longest, True) for artifact in exported]
        logits = fresh_process.result()
    proofs: dict[str, dict[str, Any]] = {artifact.task: {} for artifact in exported}
    float_logits: dict[str, np.ndarray] = {}
    for artifact, got, expected in zip(exported, logits, expected_logits, strict=True):
        in_float = float_logits.setdefault(artifact.task, expected)  # the float model is the first of its task
        if artifact.name == FLOAT_ONNX:
            difference(artifact.copy.path, got, in_float, onnx.TOLERANCE)
        proofs[artifact.task][artifact.name] = {
            "rows": len(texts[artifact.task]),
            "largest_difference": difference(artifact.copy.path, got, expected),
            "from_float": float(np.abs(got - in_float).max()),
            "agreement": _agreement(tasks[artifact.task].task, got, in_float),
        }
    return proofs


def _export(ctx: Context, step: Step, task: str, out: Path) -> list[Exported]:
    """Write one task's folder. Returns its artifacts, the float model first."""
    settings: Export = step.settings
    source, evaluated = ctx.checkpoint(step.start, task), step.source("evaluated")
    measured = results(ctx, evaluated) if isinstance(evaluated, Step) else None
    target = step.target or None
    card = plain_card(origin(ctx), settings.start, task) if measured is None else model_card(measured, target, task)
    failed = {
        f"{model['backend']} {model['scheme']}"
        for model in (measured or {}).get("models", [])
        if (model["role"], model["target"]) == ("student", target) and "failed" in model
    }
    quantized = [model for model in _quantized(ctx, step, task) if model[0] not in failed]
    export_folder(source, out, card, [(path, name_in_folder) for _, _, path, name_in_folder in quantized])
    in_float = Exported(task, "torch float", Artifact("torch", source, source), Artifact("torch", out, out))
    return [
        in_float,
        *(
            Exported(task, name, Artifact(loader, path, source), Artifact(loader, out / name_in_folder, out))
            for name, loader, path, name_in_folder in quantized
        ),
    ]


def _quantized(ctx: Context, step: Step, task: str) -> Iterator[tuple[str, str, Path, str]]:
    """(backend and scheme, backend that loads it, its path, its path in the exported folder) of each artifact that
    the quantize stage has for a task: the float32 ONNX file and the quantized models."""
    quantized = step.source("quantized")
    if not isinstance(quantized, Step):
        return
    folder = ctx.folder.of(quantized) / task
    if (folder / ONNX).is_file():
        yield FLOAT_ONNX, "onnxruntime", folder / ONNX, f"onnx/{ONNX}"
    for name in ctx.folder.manifest(quantized)["schemes"]:
        scheme = SCHEMES[name]
        if (folder / scheme.file).exists():
            name_in_folder = f"onnx/{scheme.file}" if scheme.backend == "onnxruntime" else scheme.file
            runtime = BACKENDS[scheme.backend].runtime
            yield f"{scheme.backend} {scheme.scheme}", runtime, folder / scheme.file, name_in_folder


def _agreement(task: Task, outputs: np.ndarray, expected: np.ndarray) -> float | None:
    """Share of rows with the same prediction; None for numbers."""
    return accuracy(task.predictions(outputs), task.predictions(expected)) if task.kind.named else None


def _texts(data: TaskData, count: int) -> list[list[str]]:
    """Validation rows of the task: one or two texts each."""
    rows = next(iter(data.validation.values()))
    return [[rows[i][column] for column in data.task.columns] for i in range(min(count, len(rows)))]
