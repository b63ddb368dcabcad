"""Evaluate stage: scores and timings of teacher, student, its int8 forms and the baseline, in one run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distill import checkpoint, family
from distill.config import Evaluate
from distill.data.collate import pad
from distill.data.encode import Encoded, encode_task
from distill.data.tasks import TaskData
from distill.evaluate import engines, latency, retained
from distill.evaluate.calibration import expected_calibration_error
from distill.evaluate.cost import gmacs, parameters, size_mib
from distill.evaluate.predict import predict
from distill.export.onnx import export_onnx
from distill.stages.context import Context
from distill.stages.quantize import BITSANDBYTES, ONNX, ONNX_INT8

REFERENCE = "teacher torch fp32_medium"
"""The teacher as it is scored: float32, by the fastest path torch has for it."""
FLOAT32 = ("fp32", "fp32_medium")
"""Schemes that the teacher's fastest float32 form is looked for among."""
TASK_ROWS, TASK_BATCH = 32, 8
TASK_LENGTHS = f"{TASK_ROWS} rows of the tasks at their own lengths, {TASK_BATCH} at a time"


@dataclass(frozen=True)
class Form:
    """A model in one form it can be run in. `scored`: its predictions are made too, else only its timing."""

    role: str
    backend: str
    scheme: str
    stage: str
    file: str | None = None
    scored: bool = True

    @property
    def name(self) -> str:
        return f"{self.role} {self.backend} {self.scheme}"


def forms(ctx: Context, settings: Evaluate) -> list[Form]:
    """Everything that is compared. Of forms with one arithmetic, only one is scored; all are timed."""
    teacher, student, made = settings.teacher, settings.student, settings.quantized or ""
    quantized = {
        "onnxruntime": [
            Form("student", "onnxruntime", "fp32", made, ONNX),
            Form("student", "onnxruntime", "int8", made, ONNX_INT8),
        ],
        "bitsandbytes": [Form("student", "bitsandbytes", "int8", made, BITSANDBYTES)],
    }
    found = [
        Form("teacher", "torch", "fp32", teacher, scored=False),
        Form("teacher", "torch", "fp32_medium", teacher),
        Form("teacher", "torch", "bf16", teacher, scored=False),
        Form("teacher", "onnxruntime", "fp32", teacher, ONNX, scored=False),
        Form("student", "torch", "fp32", student, scored=False),
        Form("student", "torch", "fp32_medium", student),
        Form("student", "torch", "bf16", student),
        *(form for scheme in _schemes(ctx, settings) for form in quantized[scheme]),
    ]
    if settings.baseline is not None:
        found.append(Form("baseline", "torch", "fp32_medium", settings.baseline))
    return [form for form in found if form.scheme != "bf16" or ctx.precision == "bf16"]


def run(ctx: Context, name: str, settings: Evaluate) -> dict[str, Any]:
    began, folder, compared = time.monotonic(), ctx.folder / name, forms(ctx, settings)
    predictions: dict[str, dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]] = {f.name: {} for f in compared}
    for task, data in ctx.tasks[0].items():
        for form, split, logits, labels in _predictions(ctx, folder / f"{task}.npz", compared, data):
            predictions[form][task, split] = (logits, labels)
    times = _times(ctx, folder, settings, compared)
    models = [_model(ctx, folder, form, compared, predictions, times, settings) for form in compared]
    manifest = {"seconds": time.monotonic() - began, "models": models, "coverage": ctx.tasks[1]}
    checkpoint.write_json(folder / checkpoint.MANIFEST, manifest)
    return manifest


def _schemes(ctx: Context, settings: Evaluate) -> list[str]:
    if settings.quantized is None:
        return []
    made: list[str] = checkpoint.read_json(ctx.folder / settings.quantized / checkpoint.MANIFEST)["schemes"]
    return made


def _path(ctx: Context, form: Form, task: str) -> Path:
    folder = ctx.checkpoint(form.stage, task)
    return folder / form.file if form.file else folder


def _engine(ctx: Context, form: Form, path: Path) -> engines.Engine:
    if form.backend == "onnxruntime":
        return engines.onnx_engine(form.name, path, scheme=form.scheme, threads=ctx.threads)
    return engines.torch_engine(
        form.name, path, scheme=form.scheme, device=ctx.accelerator.device.type, threads=ctx.threads
    )


def _encoded(ctx: Context, data: TaskData) -> dict[str, Encoded]:
    return {
        split: encode_task(rows, data.task.columns, ctx.tokenizer, ctx.config.tasks.max_length)
        for split, rows in data.validation.items()
    }


def _token_types(path: Path) -> bool:
    return bool(family.family_of(_config(path)).token_types)


def _config(path: Path) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(path)


def _predictions(
    ctx: Context, file: Path, compared: list[Form], data: TaskData
) -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
    """(form, split, logits, labels) of one task; kept in `file`, so that a run that was stopped goes on."""
    kept: dict[str, np.ndarray] = {}
    encoded = _encoded(ctx, data)
    scored = [form for form in compared if form.scored]
    if file.is_file():
        with np.load(file, allow_pickle=False) as stored:
            kept = dict(stored)
    for form in scored:
        for split, rows in encoded.items():
            if (key := f"{form.name}|{split}") in kept:
                continue
            path = _path(ctx, form, data.task.name)
            token_types = _token_types(ctx.checkpoint(_float_stage(form, compared), data.task.name))
            ctx.say(f"evaluate/{data.task.name}: {form.name}, {len(rows)} rows of {split}")
            kept[key] = predict(
                _engine(ctx, form, path).run, rows, pad_id=ctx.tokenizer.pad_token_id, token_types=token_types
            )
            _write_arrays(file, kept)
    for form in scored:
        for split, rows in encoded.items():
            assert rows.labels is not None
            yield form.name, split, kept[f"{form.name}|{split}"], rows.labels


def _write_arrays(file: Path, arrays: dict[str, np.ndarray]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.tmp.npz")
    np.savez(temporary, **arrays)  # type: ignore[arg-type]
    temporary.replace(file)


def _float_stage(form: Form, compared: list[Form]) -> str:
    """Stage with the float checkpoint that a form was made from."""
    return next(f.stage for f in compared if f.role == form.role and f.file is None)


def _times(ctx: Context, folder: Path, settings: Evaluate, compared: list[Form]) -> dict[str, dict[str, list[float]]]:
    """Form -> inputs -> milliseconds of each round, all forms in turn. Kept, so that a report can be made again."""
    file = folder / "latency.json"
    if file.is_file():
        stored: dict[str, dict[str, list[float]]] = checkpoint.read_json(file)
        return stored
    task = next(iter(ctx.tasks[0]))
    onnx = folder / "teacher" / ONNX
    if not onnx.is_file():
        with checkpoint.writing(onnx.parent) as temporary:
            export_onnx(ctx.checkpoint(settings.teacher, task), temporary / ONNX)
    made = [_engine(ctx, f, onnx if f.role == "teacher" and f.file else _path(ctx, f, task)) for f in compared]
    config = _config(ctx.checkpoint(settings.teacher, task))
    token_types = bool(family.family_of(config).token_types)
    repeats = ctx.config.limit.repeats or settings.repeats
    times: dict[str, dict[str, list[float]]] = {form.name: {} for form in compared}
    inputs = {
        f"{rows}x{length}": [latency.synthetic((rows, length), config.vocab_size, token_types=token_types)]
        for rows, length in settings.shapes
    }
    inputs[TASK_LENGTHS] = _task_batches(ctx, token_types)
    for key, batches in inputs.items():
        ctx.say(f"evaluate: timing {len(made)} forms, {key}, {repeats} rounds")
        for (form, _), values in latency.measure(made, {key: batches}, repeats=repeats).items():
            times[form][key] = values
    checkpoint.write_json(file, times)
    return times


def _task_batches(ctx: Context, token_types: bool) -> list[dict[str, np.ndarray]]:
    """Rows drawn evenly from the validation splits of all tasks, like lengths together."""
    random = np.random.default_rng(0)
    tasks = [next(iter(_encoded(ctx, data).values())) for data in ctx.tasks[0].values()]
    drawn = [(rows, int(random.integers(len(rows)))) for rows, _ in zip(_cycle(tasks), range(TASK_ROWS), strict=False)]
    drawn.sort(key=lambda pair: int(pair[0].lengths[pair[1]]))
    batches = []
    for start in range(0, TASK_ROWS, TASK_BATCH):
        part = drawn[start : start + TASK_BATCH]
        ids = [rows.ids[rows.offsets[i] : rows.offsets[i + 1]] for rows, i in part]
        offsets = np.cumsum([0, *map(len, ids)])
        joined = Encoded(np.concatenate(ids), offsets, None, None)
        batches.append(dict(pad(joined, range(len(part)), ctx.tokenizer.pad_token_id, token_types=token_types)))
    return batches


def _cycle(values: list[Encoded]) -> Iterator[Encoded]:
    while True:
        yield from values


def _model(
    ctx: Context,
    folder: Path,
    form: Form,
    compared: list[Form],
    predictions: dict[str, Any],
    times: dict[str, dict[str, list[float]]],
    settings: Evaluate,
) -> dict[str, Any]:
    """One row of `models` in results.json."""
    tasks = ctx.tasks[0]
    names = {task: data.task.metrics for task, data in tasks.items()}
    own, best = predictions[form.name], predictions[REFERENCE]
    scores = retained.scores(own, names)
    middle = "x".join(map(str, settings.shapes[len(settings.shapes) // 2]))
    task = next(iter(tasks))
    path = _path(ctx, form, task)
    source = ctx.checkpoint(_float_stage(form, compared), task)
    if form.role == "teacher" and form.file:
        path = folder / "teacher" / ONNX
    large = "x".join(map(str, settings.shapes[-1]))
    return {
        "name": form.role,
        "role": form.role,
        "scheme": form.scheme,
        "backend": form.backend,
        "path": str(path.relative_to(ctx.folder)) if path.is_relative_to(ctx.folder) else None,
        "parameters": parameters(source),
        "size_mib": size_mib(path),
        "gmacs": gmacs(source),
        "latency_ms": [_latency(inputs, values) for inputs, values in times[form.name].items()],
        "throughput_per_second": 1000 * settings.shapes[-1][0] / float(np.median(times[form.name][large])),
        "peak_memory_mib": None,
        "scores": {t: {m: {"mean": v, "std": None, "by_seed": [v]} for m, v in by.items()} for t, by in scores.items()},
        "glue": retained.glue_average(scores) if scores else None,
        "calibration_error": _calibration(own, tasks),
        "retained": _retained(own, best, names) if scores and form.name != REFERENCE else None,
        "speedup": _speedup(form, compared, times, middle),
    }


def _latency(inputs: str, values: list[float]) -> dict[str, Any]:
    row = latency.summary(values)
    if inputs == TASK_LENGTHS:
        return {"batch": None, "length": None, "name": inputs, **row}
    batch, length = inputs.split("x")
    return {"batch": int(batch), "length": int(length), **row}


def _calibration(own: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]], tasks: dict[str, TaskData]) -> float | None:
    """Mean over the classification splits; None where there is no prediction."""
    errors = [
        expected_calibration_error(logits, labels)
        for (task, _), (logits, labels) in own.items()
        if tasks[task].task.num_labels > 1
    ]
    return float(np.mean(errors)) if errors else None


def _retained(own: Any, best: Any, names: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    kept = retained.retained(retained.scores(own, names), retained.scores(best, names))
    interval = retained.bootstrap(own, best, names)
    return kept | {"ci95": None if interval is None else list(interval)}


def _speedup(form: Form, compared: list[Form], times: dict[str, dict[str, list[float]]], shape: str) -> dict[str, Any]:
    """Against the teacher's best float32 on the same backend, and against its fastest float32 on any."""
    teachers = [f for f in compared if f.role == "teacher" and f.scheme in FLOAT32]
    fastest = min(teachers, key=lambda f: float(np.median(times[f.name][shape])))
    same = f"teacher {form.backend} fp32" if form.backend == "onnxruntime" else REFERENCE
    headline = latency.speedup(times[fastest.name][shape], times[form.name][shape])
    return {
        "best_teacher": headline["median"],
        "ci95": headline["ci95"],
        "same_backend": latency.speedup(times[same][shape], times[form.name][shape])["median"],
    }
