"""Export stage: for every task, a folder to deploy. A fresh process verifies the outputs of each artifact in it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from distill.config.backends import BACKENDS
from distill.config.plan import SHARED_HEADS, Step
from distill.config.schemes import FLOAT_ONNX, ONNX, SCHEMES, file_of
from distill.data.task import Task
from distill.data.tasks import TaskData
from distill.deploy import serve
from distill.deploy.export import cross_encoder, onnx, recheck, record
from distill.deploy.export.huggingface import copied, export_folder
from distill.deploy.export.proof import Artifact, difference, fresh, logits_of
from distill.evaluation.metrics import METRICS
from distill.inference.timing import last_special
from distill.models.families import sentence, vectors
from distill.pipeline.collect import origin, results
from distill.pipeline.context import Context
from distill.pipeline.stages import embedder
from distill.report import heads_card, model_card, plain_card, timed
from distill.report.schema import Model, Results
from distill.runtime import progress
from distill.runtime.storage import run_folder
from distill.runtime.versions import cpu_flags

PROOF_ROWS, SMOKE_ROWS = 256, 4
"""Number of a task's rows that verify an export, and under limit=smoke."""


@dataclass(frozen=True)
class Exported:
    """One artifact of a task's model."""

    task: str
    backend: str
    scheme: str
    """`backend` and `scheme` are its names in results.json."""
    path: str
    """Its path below the exported folder; `.` for the folder itself."""
    source: Artifact
    """The artifact in the folder of the step that produced it."""
    copy: Artifact
    """The artifact in the exported folder."""

    @property
    def name(self) -> str:
        """Its name in the manifest."""
        return "torch float" if self.path == "." else f"{self.backend} {self.scheme}"


def run(ctx: Context, step: Step) -> dict[str, Any]:
    """Export every task's model. The folder appears only when all artifacts are verified. Returns the manifest."""
    if step.embeds:
        return embedder.run(ctx, step)
    if ctx.shared:
        return _run_heads(ctx, step)
    began, tasks = time.monotonic(), ctx.tasks
    count, longest = SMOKE_ROWS if ctx.config.limit.smoke else PROOF_ROWS, ctx.config.tasks.max_length
    texts = {task: _texts(data, count) for task, data in tasks.items()}
    with run_folder.writing(ctx.folder.of(step)) as temporary:
        exported = [artifact for task in tasks for artifact in _export(ctx, step, task, temporary / task)]
        ctx.machine.log(f"{step.folder}: {len(exported)} artifacts are verified in a fresh process without distill")
        with progress.waiting("verifying"):
            proofs = _verified(exported, tasks, texts, longest)
        for task, data in tasks.items():
            if data.task.kind.separate:
                _loads_elsewhere(next(a for a in exported if a.task == task), texts[task], longest)
            entries = [*_entries(ctx, step, [a for a in exported if a.task == task], proofs[task])]
            record.write(temporary / task, record.of_task(data.task, longest, entries, _flags()))
            _store_check(ctx, step, temporary / task, entries)
        manifest = {"proofs": proofs, "seconds": time.monotonic() - began}
        run_folder.write_json(temporary / run_folder.MANIFEST, manifest)
    return manifest


def _run_heads(ctx: Context, step: Step) -> dict[str, Any]:
    """Export one folder with a subfolder for each task's model, and the ONNX files with all heads. The manifest."""
    began, tasks = time.monotonic(), ctx.tasks
    count, longest = SMOKE_ROWS if ctx.config.limit.smoke else PROOF_ROWS, ctx.config.tasks.max_length
    texts = [text for data in tasks.values() for text in _texts(data, max(1, count // len(tasks)))]
    measured = _measured(ctx, step)
    with run_folder.writing(ctx.folder.of(step)) as temporary:
        top = temporary / SHARED_HEADS
        heads = [_head(ctx, step, task, top) for task in tasks]
        whole = [*_whole(ctx, step, top, heads[0], measured)]
        count = len(heads) + len(whole)
        ctx.machine.log(f"{step.folder}: {count} artifacts are verified in a fresh process without distill")
        with progress.waiting("verifying"):
            proofs = _verified_heads(ctx, heads, whole, texts, longest)
        for head in heads:
            chosen = _temperature(_students(measured, step), head.task, "torch", "fp32")
            agreement = proofs[head.task][head.name]["agreement"]
            entry = record.Entry("torch", "fp32", ".", agreement=agreement, temperature=chosen)
            record.write(top / head.task, record.of_task(tasks[head.task].task, longest, [entry], _flags()))
        entries = [*_entries(ctx, step, [replace(heads[0], task=SHARED_HEADS), *whole], proofs[SHARED_HEADS])]
        record.write(top, record.Heads(tuple(tasks), tuple(entries), _flags()))
        _store_check(ctx, step, top, entries)
        run_folder.write_text(top / "README.md", heads_card(origin(ctx), list(tasks), measured))
        manifest = {"proofs": proofs, "seconds": time.monotonic() - began}
        run_folder.write_json(temporary / run_folder.MANIFEST, manifest)
    return manifest


def _flags() -> str:
    """The flags of this processor."""
    return " ".join(cpu_flags())


def _store_check(ctx: Context, step: Step, folder: Path, entries: Sequence[record.Entry]) -> None:
    """Store rows by which `distill.load` checks the quantized artifacts of a folder on another processor, if it has
    any."""
    checked = [entry for entry in entries if recheck.is_checked(entry.scheme)]
    if not checked:
        return
    tokenizer, threads = ctx.tokenizer(step.start), ctx.machine.threads
    rows = recheck.rows(len(tokenizer), tokenizer.all_special_ids, last_special(tokenizer), ctx.config.tasks.max_length)
    outputs = {}
    for entry in checked:
        model = serve.load(folder, backend=entry.backend, scheme=entry.scheme, threads=threads)
        run = model.model.run if isinstance(model, serve.Heads) else model.run
        outputs[entry.name] = recheck.outputs(run, rows)
    recheck.write(folder, recheck.Check(rows, outputs))


def _head(ctx: Context, step: Step, task: str, top: Path) -> Exported:
    """Write the folder of a task's whole model below `top`."""
    source, out = ctx.checkpoint(step.start, task), top / task
    _write_folder(ctx, step, task, out)
    return Exported(task, "torch", "fp32", ".", Artifact("torch", source, source), Artifact("torch", out, out))


def _whole(ctx: Context, step: Step, top: Path, first: Exported, measured: Results | None) -> Iterator[Exported]:
    """Copy the files with all heads to `top`. `first`: a head, whose tokenizer they need."""
    failed = {name for name, model in _students(measured, step).items() if "failed" in model}
    for backend, scheme, path, place in _quantized(ctx, step, SHARED_HEADS):
        if (backend, scheme) not in failed:
            copied(path, top / place)
            source = Artifact(_reloader(backend), path, first.source.tokenizer)
            copy = Artifact(_reloader(backend), top / place, first.copy.tokenizer)
            yield Exported(SHARED_HEADS, backend, scheme, place, source, copy)


def _verified_heads(
    ctx: Context, heads: list[Exported], whole: list[Exported], texts: list[list[str]], longest: int
) -> dict[str, dict[str, Any]]:
    """As `_verified`, for models of several tasks with one encoder and files with all heads, on the same texts."""
    every = [*heads, *whole]
    with ThreadPoolExecutor(1) as pool:
        texts_of_folder = {head.copy.tokenizer: texts for head in heads}
        fresh_process = pool.submit(fresh, [artifact.copy for artifact in every], texts_of_folder, longest, True)
        expected_logits = [logits_of(artifact.source, texts, longest, True) for artifact in every]
        logits = fresh_process.result()
    in_float = np.concatenate(expected_logits[: len(heads)], axis=-1)
    agree = {"agreement": 1.0 if all(ctx.tasks[head.task].task.kind.named for head in heads) else None}
    proofs: dict[str, dict[str, Any]] = {SHARED_HEADS: {"torch float": agree}}
    for artifact, got, expected in zip(every, logits, expected_logits, strict=True):
        of_task = artifact.task != SHARED_HEADS
        reference = in_float[:, ctx.columns(artifact.task)] if of_task else in_float
        largest = difference(artifact.copy.path, got, expected)
        if (artifact.backend, artifact.scheme) == FLOAT_ONNX:
            difference(artifact.copy.path, got, in_float, onnx.TOLERANCE)
        agreements = [
            _agreement(
                ctx.tasks[head.task].task, *(v if of_task else v[:, ctx.columns(head.task)] for v in (got, reference))
            )
            for head in heads
            if head.task == artifact.task or not of_task
        ]
        proofs.setdefault(artifact.task, {})[artifact.name] = {
            "rows": len(texts),
            "largest_difference": largest,
            "from_float": float(np.abs(got - reference).max()),
            "agreement": min((a for a in agreements if a is not None), default=None),  # of the worst task
        }
    return proofs


def _verified(
    exported: list[Exported], tasks: dict[str, TaskData], texts: dict[str, list[list[str]]], longest: int
) -> dict[str, dict[str, Any]]:
    """Task -> artifact -> differences between its logits in a fresh process and the logits of its source and of the
    float model.

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
        if (artifact.backend, artifact.scheme) == FLOAT_ONNX:
            difference(artifact.copy.path, got, in_float, onnx.TOLERANCE)
        proofs[artifact.task][artifact.name] = {
            "rows": len(texts[artifact.task]),
            "largest_difference": difference(artifact.copy.path, got, expected),
            "from_float": float(np.abs(got - in_float).max()),
            "agreement": _agreement(tasks[artifact.task].task, got, in_float),
        }
    return proofs


def _loads_elsewhere(exported: Exported, texts: list[list[str]], longest: int) -> None:
    """Raise UserError if sentence-transformers, where it is installed, makes other vectors of the exported float
    model."""
    if find_spec("sentence_transformers") is None:
        return
    from tokenizers.normalizers import Lowercase

    folder, stripped = exported.copy.path, [[text.strip()] for (text,) in texts]  # as some versions of it do
    (got,) = fresh([Artifact("sentence-transformers", folder, folder)], {folder: stripped}, longest)
    if sentence.reading(folder).lower:  # which the tokenizer's own files may not state
        stripped = [[Lowercase().normalize_str(text)] for (text,) in stripped]
    difference(folder, got, logits_of(exported.source, stripped, longest))


def _entries(
    ctx: Context, step: Step, exported: list[Exported], proofs: dict[str, dict[str, Any]]
) -> Iterator[record.Entry]:
    """The artifacts of a task with their times at the middle shape of the evaluation."""
    measured = _measured(ctx, step)
    shape = None if measured is None else timed.reported_input(measured)
    models = {name: model for name, model in _students(measured, step).items() if "failed" not in model}
    for artifact in exported:
        row = timed.latency(models.get((artifact.backend, artifact.scheme), {}), shape) or {}
        times = (row.get("median"), row.get("batch"), row.get("length"))
        chosen = _temperature(models, artifact.task, artifact.backend, artifact.scheme)
        agreement = proofs[artifact.name]["agreement"]
        yield record.Entry(artifact.backend, artifact.scheme, artifact.path, *times, agreement, chosen)
    places = {(artifact.backend, artifact.scheme): artifact.path for artifact in exported}
    for (backend, scheme), model in models.items():
        file = file_of(backend, scheme)
        if file in places and (backend, scheme) not in places and model["scores"]:
            row = timed.latency(model, shape) or {}
            times = (row.get("median"), row.get("batch"), row.get("length"))
            chosen = _temperature(models, exported[0].task, backend, scheme)
            yield record.Entry(backend, scheme, places[file], *times, None, chosen)


def _temperature(models: dict[tuple[str, str], Model], task: str, backend: str, scheme: str) -> float | None:
    """The temperature of the student's variant. A float32 variant that was only timed has the temperature of another
    float32 variant."""
    same = [(backend, scheme), *(name for name in models if scheme == name[1] == "fp32")]
    found = (models.get(name, {}).get("calibration", {}).get(task, {}).get("temperature") for name in same)
    return next((value for value in found if value is not None), None)


def _measured(ctx: Context, step: Step) -> Results | None:
    """The results of the evaluation that the export names; None without one."""
    evaluated = step.source("evaluated")
    return results(ctx, evaluated) if isinstance(evaluated, Step) else None


def _students(measured: Results | None, step: Step) -> dict[tuple[str, str], Model]:
    """(backend, scheme) -> row of results.json, for each variant of the student of the step's target."""
    return {
        (model["backend"], model["scheme"]): model
        for model in (measured or {}).get("models", [])
        if (model["role"], model["target"]) == ("student", step.target or None)
    }


def _export(ctx: Context, step: Step, task: str, out: Path) -> list[Exported]:
    """Write one task's folder. Returns its artifacts, the float model first."""
    source, measured = ctx.checkpoint(step.start, task), _measured(ctx, step)
    failed = {name for name, model in _students(measured, step).items() if "failed" in model}
    quantized = [model for model in _quantized(ctx, step, task) if model[:2] not in failed]
    also = [(path, name_in_folder) for _, _, path, name_in_folder in quantized]
    _write_folder(ctx, step, task, out, also)
    in_float = Exported(task, "torch", "fp32", ".", Artifact("torch", source, source), Artifact("torch", out, out))
    return [in_float, *(_exported(task, source, out, *model) for model in quantized)]


def _write_folder(ctx: Context, step: Step, task: str, out: Path, also: Sequence[tuple[Path, str]] = ()) -> None:
    """Write a task's folder, with further files and their paths in it."""
    source, separate = ctx.checkpoint(step.start, task), ctx.tasks[task].task.kind.separate
    modules = [(path, path.name) for path in vectors.stored(source)] if separate else []
    export_folder(source, out, _card(ctx, step, task, _measured(ctx, step)), [*also, *modules])
    if separate:
        _finish(ctx, task, out)
    elif ctx.tasks[task].task.kind.pipeline == cross_encoder.PIPELINE:
        cross_encoder.configure(out, cross_encoder.activation([*map(Path, ctx.given.teachers)]))
        cross_encoder.limit_length(out, ctx.config.tasks.max_length)
    elif ctx.tasks[task].task.kind.name == "regression" and sentence.of_cross_encoder(out):
        # The teacher's config states it, and the student has this config.
        cross_encoder.configure(out, cross_encoder.IDENTITY)


def _finish(ctx: Context, task: str, out: Path) -> None:
    """Write the length and the prompts of an embedder's exported folder."""
    of_task = ctx.tasks[task].task
    student, given = vectors.read(out) or vectors.Vectors(), vectors.read(ctx.given.teacher) or vectors.Vectors()
    trained = vectors.with_prompts(student, given, of_task.prompts, of_task.kind.grouped)
    vectors.finish(out, ctx.config.tasks.max_length, trained)


def _card(ctx: Context, step: Step, task: str, measured: Results | None) -> str:
    """README.md of a task's folder."""
    does, longest = ctx.tasks[task].task.kind.pipeline, ctx.config.tasks.max_length
    if measured is None:
        return plain_card(origin(ctx), step.settings.start, task, does, longest)
    return model_card(measured, step.target or None, task, does, longest)


def _exported(task: str, source: Path, out: Path, backend: str, scheme: str, path: Path, place: str) -> Exported:
    loader = _reloader(backend)
    copy = Artifact(loader, out / place, out)
    return Exported(task, backend, scheme, place, Artifact(loader, path, source), copy)


def _reloader(backend: str) -> str:
    """What loads the files of a backend in the new process."""
    return BACKENDS[backend].reloader or BACKENDS[backend].runtime


def _quantized(ctx: Context, step: Step, task: str) -> Iterator[tuple[str, str, Path, str]]:
    """(backend, scheme, path, path in the exported folder) of each artifact that the quantize stage has for a task:
    the float32 ONNX file and the quantized models."""
    quantized = step.source("quantized")
    if not isinstance(quantized, Step):
        return
    folder = ctx.folder.of(quantized) / task
    if (folder / ONNX).is_file():
        yield *FLOAT_ONNX, folder / ONNX, f"onnx/{ONNX}"
    for name in ctx.folder.manifest(quantized)["schemes"]:
        scheme = SCHEMES[name]
        if (folder / scheme.file).exists():
            name_in_folder = f"onnx/{scheme.file}" if Path(scheme.file).suffix == Path(ONNX).suffix else scheme.file
            yield scheme.backend, scheme.scheme, folder / scheme.file, name_in_folder


def _agreement(task: Task, outputs: np.ndarray, expected: np.ndarray) -> float | None:
    """Share of rows with the same prediction; None for numbers."""
    both = (task.predictions(values.reshape(-1, task.outputs)) for values in (outputs, expected))
    return METRICS["accuracy"](*both) if task.kind.named else None


def _texts(data: TaskData, count: int) -> list[list[str]]:
    """The texts of rows of the task's development split, at most `count`."""
    rows = next(iter(data.development.values()))
    return data.inputs(rows.select(range(min(count, len(rows)))))[:count]
