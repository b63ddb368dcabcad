"""Export stage: the folder a user deploys, for every task, and the proof that each artifact in it outputs the same."""

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
from distill.data.tasks import TaskData
from distill.export import onnx
from distill.export.huggingface import export_folder
from distill.export.proof import Artifact, difference, fresh, logits_of
from distill.plan import Step
from distill.report import model_card, plain_card
from distill.results import origin, results
from distill.schemes import ONNX, SCHEMES
from distill.stages import embedder

PROOF_ROWS, SMOKE_ROWS = 256, 4


@dataclass(frozen=True)
class Exported:
    """One artifact of a task's model: backend and scheme, where it was made, and where it was put."""

    task: str
    name: str
    source: Artifact
    copy: Artifact


def run(ctx: Context, step: Step) -> dict[str, Any]:
    """Export every task's model, all of them proved before any is there. Returns the manifest."""
    if step.embeds:
        return embedder.run(ctx, step)
    began, tasks = time.monotonic(), ctx.tasks
    count, longest = SMOKE_ROWS if ctx.config.limit.smoke else PROOF_ROWS, ctx.config.tasks.max_length
    texts = {task: _texts(data, count) for task, data in tasks.items()}
    with checkpoint.writing(ctx.folder.of(step)) as temporary:
        exported = [artifact for task in tasks for artifact in _export(ctx, step, task, temporary / task)]
        ctx.machine.say(f"{step.folder}: {len(exported)} artifacts in a fresh process without distill, and here")
        proofs = _proved(exported, texts, longest)
        manifest = {"proofs": proofs, "seconds": time.monotonic() - began}
        checkpoint.write_json(temporary / checkpoint.MANIFEST, manifest)
    return manifest


def _proved(exported: list[Exported], texts: dict[str, list[list[str]]], longest: int) -> dict[str, dict[str, Any]]:
    """Task -> artifact -> its distance from what was made, and from the float model. UserError where it is too far."""
    of_folder = {artifact.copy.tokenizer: texts[artifact.task] for artifact in exported}
    with ThreadPoolExecutor(1) as pool:
        elsewhere = pool.submit(fresh, [artifact.copy for artifact in exported], of_folder, longest, True)
        wanted = [logits_of(artifact.source, texts[artifact.task], longest, True) for artifact in exported]
        outputs = elsewhere.result()
    proofs: dict[str, dict[str, Any]] = {artifact.task: {} for artifact in exported}
    exact: dict[str, np.ndarray] = {}
    for artifact, got, expected in zip(exported, outputs, wanted, strict=True):
        first = exact.setdefault(artifact.task, expected)
        if artifact.name.endswith(" fp32"):
            difference(artifact.copy.path, got, first, onnx.TOLERANCE)
        proofs[artifact.task][artifact.name] = {
            "rows": len(texts[artifact.task]),
            "largest_difference": difference(artifact.copy.path, got, expected),
            "from_float": float(np.abs(got - first).max()),
            "agreement": _agreement(got, first),
        }
    return proofs


def _export(ctx: Context, step: Step, task: str, out: Path) -> list[Exported]:
    """One task's folder. Returns what is in it, the float model first."""
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
    quantized = [parts for parts in _quantized(ctx, step, task) if parts[0] not in failed]
    export_folder(source, out, card, [(path, place) for _, _, path, place in quantized])
    first = Exported(task, "torch float", Artifact("torch", source, source), Artifact("torch", out, out))
    return [
        first,
        *(
            Exported(task, name, Artifact(loader, path, source), Artifact(loader, out / place, out))
            for name, loader, path, place in quantized
        ),
    ]


def _quantized(ctx: Context, step: Step, task: str) -> Iterator[tuple[str, str, Path, str]]:
    """(backend and scheme, what loads it, where it is, its place in the folder) of a task's quantized models."""
    quantized = step.source("quantized")
    if not isinstance(quantized, Step):
        return
    folder = ctx.folder.of(quantized) / task
    if (folder / ONNX).is_file():
        yield "onnxruntime fp32", "onnxruntime", folder / ONNX, f"onnx/{ONNX}"
    for name in ctx.folder.manifest(quantized)["schemes"]:
        scheme = SCHEMES[name]
        if (folder / scheme.file).exists():
            place = f"onnx/{scheme.file}" if scheme.backend == "onnxruntime" else scheme.file
            runtime = BACKENDS[scheme.backend].runtime
            yield f"{scheme.backend} {scheme.scheme}", runtime, folder / scheme.file, place


def _agreement(got: np.ndarray, exact: np.ndarray) -> float | None:
    """Share of rows with the same answer; None where the answer is a number."""
    return float((got.argmax(1) == exact.argmax(1)).mean()) if got.shape[1] > 1 else None


def _texts(data: TaskData, count: int) -> list[list[str]]:
    """Real rows of the task: one or two texts each."""
    rows = next(iter(data.validation.values()))
    return [[rows[i][column] for column in data.task.columns] for i in range(min(count, len(rows)))]
