"""Export stage: the folder a user deploys, for every task, and the proof that each form in it says the same."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distill import checkpoint
from distill.compress.quantize import ONNX, SCHEMES
from distill.config import Export
from distill.data.tasks import TaskData
from distill.export import onnx
from distill.export.huggingface import export_folder
from distill.export.proof import Artifact, difference, fresh, here
from distill.plan import embeds
from distill.report import model_card, plain_card
from distill.stages import embedder
from distill.stages.context import Context
from distill.stages.results import origin, results

PROOF_ROWS, SMOKE_ROWS = 256, 4


@dataclass(frozen=True)
class Exported:
    """One form of a task's model: what it is called, where it was made, and where it was put."""

    task: str
    form: str
    made: Artifact
    put: Artifact


def run(ctx: Context, name: str, settings: Export) -> dict[str, Any]:
    if embeds(ctx.config, name):
        return embedder.run(ctx, name, settings)
    began, tasks = time.monotonic(), ctx.tasks[0]
    count, longest = SMOKE_ROWS if ctx.config.limit.smoke else PROOF_ROWS, ctx.config.tasks.max_length
    texts = {task: _texts(data, count) for task, data in tasks.items()}
    try:
        exported = [one for task in tasks for one in _export(ctx, name, settings, task)]
        ctx.say(f"{name}: {len(exported)} forms in a fresh process without distill, and here")
        proofs = _proved(exported, texts, longest)
    except BaseException:
        # A folder that is there under its name is one that was proved.
        for task in tasks:
            shutil.rmtree(ctx.folder / name / task, ignore_errors=True)
        raise
    manifest = {"proofs": proofs, "seconds": time.monotonic() - began}
    checkpoint.write_json(ctx.folder / name / checkpoint.MANIFEST, manifest)
    return manifest


def _proved(exported: list[Exported], texts: dict[str, list[list[str]]], longest: int) -> dict[str, dict[str, Any]]:
    """Task -> form -> how far it is from what was made, and from the float model. UserError where it is too far."""
    of_folder = {one.put.tokenizer: texts[one.task] for one in exported}
    with ThreadPoolExecutor(1) as pool:
        elsewhere = pool.submit(fresh, [one.put for one in exported], of_folder, longest, True)
        meanwhile = [here(one.made, texts[one.task], longest, True) for one in exported]
        said = elsewhere.result()
    proofs: dict[str, dict[str, Any]] = {one.task: {} for one in exported}
    exact: dict[str, np.ndarray] = {}
    for one, got, wanted in zip(exported, said, meanwhile, strict=True):
        first = exact.setdefault(one.task, wanted)
        if one.form.endswith(" fp32"):
            difference(one.put.path, got, first, onnx.TOLERANCE)
        proofs[one.task][one.form] = {
            "rows": len(texts[one.task]),
            "largest_difference": difference(one.put.path, got, wanted),
            "from_float": float(np.abs(got - first).max()),
            "agreement": _agreement(got, first),
        }
    return proofs


def _export(ctx: Context, name: str, settings: Export, task: str) -> list[Exported]:
    """One task's folder, whole or not at all. Returns the forms in it, the float one first."""
    source, folder = ctx.checkpoint(settings.start, task), ctx.folder / name / task
    measured = results(ctx, settings.evaluated) if settings.evaluated is not None else None
    student = " ".join(("student", *name.split("/")[1:]))
    card = plain_card(origin(ctx), settings.start, task) if measured is None else model_card(measured, student, task)
    failed = {
        f"{model['backend']} {model['scheme']}"
        for model in (measured or {}).get("models", [])
        if model["name"] == student and "failed" in model
    }
    made = [one for one in _quantized(ctx, settings, task) if one[0] not in failed]
    export_folder(source, folder, card, [(path, place) for _, _, path, place in made])
    first = Exported(task, "torch float", Artifact("torch", source, source), Artifact("torch", folder, folder))
    return [
        first,
        *(
            Exported(task, form, Artifact(backend, path, source), Artifact(backend, folder / place, folder))
            for form, backend, path, place in made
        ),
    ]


def _quantized(ctx: Context, settings: Export, task: str) -> Iterator[tuple[str, str, Path, str]]:
    """(form, what loads it, where it is, its place in the folder) of what a quantize stage made of a task's model."""
    if settings.quantized is None:
        return
    made = ctx.folder / settings.quantized / task
    if (made / ONNX).is_file():
        yield "onnxruntime fp32", "onnxruntime", made / ONNX, f"onnx/{ONNX}"
    for scheme in checkpoint.read_json(ctx.folder / settings.quantized / checkpoint.MANIFEST)["schemes"]:
        one = SCHEMES[scheme]
        if (made / one.file).exists():
            place = f"onnx/{one.file}" if one.backend == "onnxruntime" else one.file
            loader = one.backend if one.onnx else "torch"
            yield f"{one.backend} {one.scheme}", loader, made / one.file, place


def _agreement(got: np.ndarray, exact: np.ndarray) -> float | None:
    """Share of rows with the same answer; None where the answer is a number."""
    return float((got.argmax(1) == exact.argmax(1)).mean()) if got.shape[1] > 1 else None


def _texts(data: TaskData, count: int) -> list[list[str]]:
    """Real rows of the task: one or two texts each."""
    rows = next(iter(data.validation.values()))
    return [[rows[i][column] for column in data.task.columns] for i in range(min(count, len(rows)))]
