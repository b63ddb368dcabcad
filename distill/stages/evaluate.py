"""Evaluate stage: scores and timings of teacher, student, quantized variants and baseline, measured together."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distill import __version__, checkpoint
from distill.config import Evaluate
from distill.context import Context
from distill.data.encode import Encoded
from distill.data.tasks import TaskData
from distill.environment import environment
from distill.errors import reason
from distill.evaluate import disagreements, latency, rows, runners, timing, variants
from distill.evaluate.lengths import of_rows
from distill.evaluate.mixture import average
from distill.evaluate.predict import in_windows, predict
from distill.evaluate.variants import Variant
from distill.export.onnx import export_onnx
from distill.plan import Step, compared
from distill.report import headline
from distill.schemes import ONNX

if TYPE_CHECKING:
    from datasets import Dataset


def run(ctx: Context, step: Step) -> dict[str, Any]:
    """Score and time every variant of the models that the step compares. Returns the manifest."""
    settings: Evaluate = step.settings
    began, folder, all_variants = time.monotonic(), ctx.folder.of(step), variants_of(ctx, step)
    _same_conditions(ctx, step, folder)
    failed: dict[str, str] = dict(_failures(ctx, all_variants))
    outputs, development = ({variant.name: dict[Any, Any]() for variant in all_variants} for _ in range(2))
    lengths: dict[tuple[str, str], np.ndarray] = {}
    for task, data in ctx.tasks.items():
        scored = [variant for variant in all_variants if variant.scored and variant.name not in failed]
        file, aside = folder / f"{task}.npz", _development(data)
        for name, split, logits, labels in _predictions(ctx, file, scored, data, data.reported, failed):
            outputs[name][task, split] = (logits, labels)
        scored = [variant for variant in scored if variant.name not in failed]
        for name, split, logits, labels in _predictions(ctx, file, scored, data, aside, failed):
            development[name][task, split] = (logits, labels)
        lengths |= {(task, s): of_rows(e) for s, e in _encoded(ctx, data, ctx.given.tokenizer, data.reported).items()}
    shapes = timing.shapes(settings.shapes, ctx.config.target.shape if ctx.plan.has_target else None)
    working = [variant for variant in all_variants if variant.name not in failed]
    times = _times(ctx, folder, settings, shapes, working, failed)
    reference = variants.reference(ctx.machine.float32)
    working = [variant for variant in working if variant.name not in failed]
    measured = rows.Measured(
        ctx.tasks, working, reference, outputs, times, shapes, settings.shapes[-1], development, lengths
    )
    models = []
    for variant in all_variants:
        if variant.name in failed:
            models.append(rows.identity(variant) | {"failed": failed[variant.name]})
            continue
        timed, one_encoder = _timed_tasks(ctx, variant), ctx.shares_encoder(variant.step.settings)
        paths = _unique(path for task in timed for path in _timed_paths(ctx, folder, variant, task))
        every = ctx.tasks if ctx.shared else timed
        sources = _unique(path for task in every for path in _folders(ctx, variant, variant.step, task))
        row = rows.row(variant, measured, sources, paths, ctx.folder.path, one_encoder)
        models.append(rows.identity(variant) | row)
    manifest = {"seconds": time.monotonic() - began, "environment": environment(ctx.machine), "command": ctx.command}
    manifest |= {"version": __version__, "models": models, "coverage": ctx.coverage}
    manifest |= {"statistics": rows.compared(measured)}
    checkpoint.write_json(ctx.folder.path / checkpoint.DISAGREEMENTS, list(_disagreements(measured, manifest)))
    return manifest


def _disagreements(measured: rows.Measured, manifest: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows on which the student of each target, in the headline's variant, and the teacher disagree."""
    known = {"models": manifest["models"], "coverage": manifest["coverage"], **manifest["statistics"]}
    best = [model for target in headline.targets(known) if (model := headline.chosen(known, target)) is not None]
    for model in best:
        identity = {key: model[key] for key in ("name", "scheme", "backend")}
        name = " ".join((model["name"], model["backend"], model["scheme"]))
        for task, data in measured.tasks.items():
            found: list[dict[str, Any]] = []
            for split, split_rows in data.reported.items() if disagreements.readable(data.task.kind) else ():
                teacher, student = (measured.outputs[each][task, split][0] for each in (measured.reference, name))
                most = disagreements.MOST - len(found)
                listed = disagreements.disagreements(data.task, split_rows, teacher, student, most)
                found += [{"task": task, "split": split, **identity, **row} for row in listed]
            yield from found


def variants_of(ctx: Context, step: Step) -> list[Variant]:
    """All variants that an evaluate step compares."""

    def schemes(quantized: Step | None) -> list[str]:
        return [] if quantized is None else list(ctx.folder.manifest(quantized)["schemes"])

    teacher, machine = step.teacher, ctx.machine
    assert isinstance(teacher, Step)
    return variants.variants(
        teacher,
        compared(step),
        schemes,
        members=len(ctx.given.teachers),
        float32=machine.float32,
        bf16=machine.precision == "bf16",
        cuda=machine.device.type == "cuda",
    )


def _same_conditions(ctx: Context, step: Step, folder: Path) -> None:
    """Remove predictions and timings of a stopped run that had other models or ran on another machine."""
    file, now = folder / "conditions.json", {"inputs": ctx.folder.inputs(step), "environment": environment(ctx.machine)}
    if file.is_file() and checkpoint.read_json(file) != now:
        ctx.machine.log(f"{step.folder}: starts again, because models or machine changed")
        checkpoint.remove(folder, ctx.folder.path)
    checkpoint.write_json(file, now)


def _failures(ctx: Context, all_variants: list[Variant]) -> Iterator[tuple[str, str]]:
    """(name, reason) of each variant that could not be quantized."""
    for variant in all_variants:
        if variant.quantized is not None:
            failed = ctx.folder.manifest(variant.quantized)["failed"]
            if variant.key in failed:
                yield variant.name, failed[variant.key]


TEMPERATURE_ROWS = 2000
"""Most development rows of a task on which each variant is run to choose its temperature, a single number."""


def _development(data: TaskData) -> dict[str, Dataset]:
    """Split -> rows on which temperatures are chosen. None that are reported, and none of tasks without classes."""
    kind = data.task.kind
    if not kind.named or kind.per_token:
        return {}
    aside = {split: rows for split, rows in data.development.items() if split not in data.reported}
    most = TEMPERATURE_ROWS // max(1, len(aside))
    spaced = {split: np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int) for split, rows in aside.items()}
    return {split: rows.select(spaced[split]) for split, rows in aside.items()}


def _encoded(ctx: Context, data: TaskData, tokenizer: Any, splits: Mapping[str, Dataset]) -> dict[str, Encoded]:
    """Split -> its encoded rows."""
    return {
        split: replace(
            data.encoded(split_rows, tokenizer, ctx.config.tasks.max_length),
            labels=data.truth(split_rows),
        )
        for split, split_rows in splits.items()
    }


def _tokenizers(ctx: Context, variant: Variant) -> list[Any]:
    """Tokenizer of each model of a variant: several for an ensemble."""
    if variant.role == "teacher":
        return [ctx.tokenizer(variant.step, member) for member in range(len(ctx.checkpoints(variant.step)))]
    return [ctx.tokenizer(variant.step, variant.member or 0)]


def _folders(ctx: Context, variant: Variant, step: Step, task: str) -> list[Path]:
    """A step's model folders for a task and a variant: several for an ensemble, one for a member of it."""
    folders = ctx.checkpoints(step, task)
    return folders if variant.member is None else [folders[variant.member]]


def _paths(ctx: Context, variant: Variant, task: str) -> list[Path]:
    """Files or folders that are loaded to run a variant."""
    folders = _folders(ctx, variant, variant.quantized or variant.step, task)
    return [folder / variant.file if variant.file else folder for folder in folders]


def _runner(ctx: Context, variant: Variant, path: Path, tokenizer: Any) -> runners.Runner:
    """Load one model of a variant from `path`."""
    machine = ctx.machine
    runner = runners.load(
        variant.name,
        path,
        backend=variant.backend,
        scheme=variant.scheme,
        device=machine.device.type,
        threads=machine.threads,
    )
    window = ctx.config.teacher.window if variant.role in ("teacher", "member") else None
    return replace(runner, run=in_windows(runner.run, tokenizer, window))


def _predictions(
    ctx: Context,
    file: Path,
    scored: list[Variant],
    data: TaskData,
    splits: Mapping[str, Dataset],
    failed: dict[str, str],
) -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
    """(variant, split, logits, labels) of one task. Logits are stored in `file`, from which a stopped run resumes."""
    logits: dict[str, np.ndarray] = {}
    encoded = {id(t): _encoded(ctx, data, t, splits) for t in ctx.every_tokenizer}
    if file.is_file():
        with np.load(file, allow_pickle=False) as stored:
            logits = dict(stored)
    for variant in scored:
        for split, rows_of_split in splits.items():
            inputs = [encoded[id(tokenizer)][split] for tokenizer in _tokenizers(ctx, variant)]
            if (key := f"{variant.name}|{split}") in logits:
                continue
            ctx.machine.log(f"evaluate/{data.task.name}: {variant.name}, {len(rows_of_split)} rows of {split}")
            try:
                logits[key] = _logits(ctx, variant, data.task.name, inputs)
            except Exception as error:
                # The report shows a failed variant as such, but needs the reference.
                if variant.name == variants.reference(ctx.machine.float32) or isinstance(error, OSError):
                    raise
                failed[variant.name] = reason(error)
                break
            checkpoint.write_arrays(file, logits)
    for variant in scored:
        for split, split_rows in encoded[id(ctx.given.tokenizer)].items():
            assert split_rows.labels is not None
            if variant.name not in failed:
                yield variant.name, split, logits[f"{variant.name}|{split}"], split_rows.labels


def _logits(ctx: Context, variant: Variant, task: str, inputs: list[Encoded]) -> np.ndarray:
    """Logits [rows, C] of a variant. `inputs`: the task's rows, encoded for each of the variant's models.

    ValueError for logits that are not finite.
    """
    by_model = []
    for path, tokenizer, encoded in zip(_paths(ctx, variant, task), _tokenizers(ctx, variant), inputs, strict=True):
        run, left = _runner(ctx, variant, path, tokenizer).run, tokenizer.padding_side == "left"
        budget = 1 if variant.row_by_row else 16384
        outputs = predict(run, encoded, pad_id=tokenizer.pad_token_id, left=left, tokens=budget)
        by_model.append(outputs[:, ctx.columns(task)] if ctx.shared and variant.quantized else outputs)
    logits = average(by_model, ctx.shares(variant.step, task) if len(by_model) > 1 else None)
    if not np.isfinite(logits).all():
        raise ValueError("its logits are not finite")
    return logits


def _times(
    ctx: Context,
    folder: Path,
    settings: Evaluate,
    shapes: list[list[int]],
    compared: list[Variant],
    failed: dict[str, str],
) -> timing.Times:
    """Times of all variants. They are stored, so that a stopped run resumes."""
    file = folder / "latency.json"
    if file.is_file():
        stored = checkpoint.read_json(file)
        failed |= stored["failed"]
        times: timing.Times = stored["times"]
        return times
    tokenizers = {variant.name: _tokenizers(ctx, variant) for variant in compared}
    readers, loaded = timing.Readers(tokenizers, ctx.every_tokenizer), list[runners.Runner]()
    for variant in compared:
        try:
            runner = _timed(ctx, folder, variant)
            runner.run(readers.synthetic(variant.name, [1, settings.shapes[0][1]]))
            loaded.append(runner)
        except Exception as error:
            if variant.name == variants.reference(ctx.machine.float32) or isinstance(error, OSError):
                raise
            failed[variant.name] = reason(error)

    def own_rows(tokenizer: Any) -> list[runners.Batch]:
        first = [
            (d.texts, next(iter(_encoded(ctx, d, tokenizer, d.reported).values())).sequences)
            for d in ctx.tasks.values()
        ]
        return timing.task_batches(first, tokenizer)

    limit = ctx.config.limit
    times = timing.timed(
        loaded,
        readers,
        shapes,
        own_rows,
        repeats=min(settings.repeats, limit.repeats or settings.repeats),
        least_ms=latency.SMOKE_MS if limit.smoke else latency.LEAST_MS,
        log=lambda text: ctx.machine.log(f"evaluate: {text}"),
    )
    checkpoint.write_json(file, {"times": times, "failed": failed})
    return times


def _timed(ctx: Context, folder: Path, variant: Variant) -> runners.Runner:
    """A variant as one runner: its model of one task or, where the student has one encoder for all tasks, all models.

    One encoder then runs once; models with encoders of their own run one after the other, on the same batch.
    """
    tasks, device = _timed_tasks(ctx, variant), ctx.machine.device.type
    if len(tasks) == 1:
        return _timed_on(ctx, folder, variant, tasks[0])
    if not ctx.shares_encoder(variant.step.settings):
        return runners.in_turn(variant.name, [_timed_on(ctx, folder, variant, task) for task in tasks])
    folders = [path for task in tasks for path in _paths(ctx, variant, task)]
    return runners.one_pass(variant.name, folders, scheme=variant.scheme, device=device, threads=ctx.machine.threads)


def _timed_on(ctx: Context, folder: Path, variant: Variant, task: str) -> runners.Runner:
    """A variant's model of one task as one runner. The teacher's ONNX files, which are only timed, are exported now."""
    paths = _timed_paths(ctx, folder, variant, task)
    if variant.role == "teacher" and variant.file:
        for source, path in zip(ctx.checkpoints(variant.step, task), paths, strict=True):
            if not path.is_file():
                with checkpoint.writing(path.parent) as temporary:
                    export_onnx(source, temporary / ONNX)
    models = zip(paths, _tokenizers(ctx, variant), strict=True)
    parts = [_runner(ctx, variant, path, tokenizer) for path, tokenizer in models]
    return parts[0] if len(parts) == 1 else runners.together(variant.name, parts, ctx.shares(variant.step, task))


def _timed_tasks(ctx: Context, variant: Variant) -> list[str]:
    """The tasks whose models' time and size are reported together: all where the student has one encoder for all.

    Else the one with most modules in float, the first of equals. A quantized file with all heads is timed once.
    """
    if ctx.shared:
        return list(ctx.tasks)[: 1 if variant.quantized else None]
    in_float: dict[str, dict[str, list[str]]] = {}
    if variant.quantized is not None:
        in_float = ctx.folder.manifest(variant.quantized)["kept"]
    return [max(ctx.tasks, key=lambda task: len(in_float.get(task, {}).get(variant.key or "", [])))]


def _unique(paths: Iterable[Path]) -> list[Path]:
    return list(dict.fromkeys(paths))


def _timed_paths(ctx: Context, folder: Path, variant: Variant, task: str) -> list[Path]:
    """Files or folders that are loaded to time a variant: for the teacher's ONNX files, below the step's folder."""
    paths = _paths(ctx, variant, task)
    if variant.role != "teacher" or not variant.file:
        return paths
    parent = folder / "teacher" / task if ctx.shared else folder / "teacher"
    return [parent / ONNX] if len(paths) == 1 else [parent / str(number + 1) / ONNX for number in range(len(paths))]
