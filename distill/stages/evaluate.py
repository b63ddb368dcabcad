"""Evaluate stage: scores and timings of teacher, student, its int8 forms and the baseline, in one run."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from distill import __version__, checkpoint
from distill.compress.quantize import ONNX
from distill.config import Evaluate
from distill.data.collate import pad
from distill.data.encode import Encoded, encode_task
from distill.data.tasks import TaskData
from distill.evaluate import latency, retained
from distill.evaluate.calibration import expected_calibration_error
from distill.evaluate.cost import gmacs, parameters, size_mib
from distill.evaluate.engines import Batch, Engine, joined, together
from distill.evaluate.mixture import average
from distill.evaluate.predict import predict
from distill.export.onnx import export_onnx
from distill.plan import has_target
from distill.stages import forms
from distill.stages.context import Context
from distill.stages.environment import environment
from distill.stages.quantize import reason

TASK_ROWS, TASK_BATCH = 32, 8
TASK_LENGTHS = f"{TASK_ROWS} rows of the tasks at their own lengths, at most {TASK_BATCH} at a time"


def run(ctx: Context, name: str, settings: Evaluate) -> dict[str, Any]:
    began, folder, compared = time.monotonic(), ctx.folder / name, forms.forms(ctx, settings)
    _same_conditions(ctx, folder, settings)
    failed: dict[str, str] = dict(forms.failures(ctx, settings))
    predictions: dict[str, dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]] = {form.name: {} for form in compared}
    for task, data in ctx.tasks[0].items():
        scored = [form for form in compared if form.scored and form.name not in failed]
        for scored_form, split, logits, labels in _predictions(ctx, folder / f"{task}.npz", scored, data, failed):
            predictions[scored_form][task, split] = (logits, labels)
    whole = [form for form in compared if form.name not in failed]
    times = _times(ctx, folder, settings, whole, failed)
    models = []
    for form in compared:
        identity = {"name": form.label, "role": form.role, "scheme": form.scheme, "backend": form.backend}
        if form.name in failed:
            models.append(identity | {"failed": failed[form.name]})
        else:
            models.append(identity | _model(ctx, folder, form, compared, predictions, times, settings))
    manifest = {"seconds": time.monotonic() - began, "environment": environment(ctx), "command": ctx.command}
    manifest |= {"version": __version__, "models": models, "coverage": ctx.tasks[1], "teacher": settings.teacher}
    checkpoint.write_json(folder / checkpoint.MANIFEST, manifest)
    return manifest


def _same_conditions(ctx: Context, folder: Path, settings: Evaluate) -> None:
    """Drop predictions and timings of an earlier try that were made from other models or on another machine."""
    file, now = folder / "conditions.json", {"inputs": ctx.inputs(settings), "environment": environment(ctx)}
    if file.is_file() and checkpoint.read_json(file) != now:
        ctx.say("evaluate: begun under other conditions, begins again")
        shutil.rmtree(folder)
    checkpoint.write_json(file, now)


def _encoded(ctx: Context, data: TaskData, tokenizer: Any) -> dict[str, Encoded]:
    return {
        split: encode_task(rows, data.task.columns, tokenizer, ctx.config.tasks.max_length)
        for split, rows in data.validation.items()
    }


def _predictions(
    ctx: Context, file: Path, scored: list[forms.Form], data: TaskData, failed: dict[str, str]
) -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
    """(form, split, logits, labels) of one task; kept in `file`, so that a run that was stopped goes on."""
    kept: dict[str, np.ndarray] = {}
    made = {id(t): _encoded(ctx, data, t) for t in ctx.every_tokenizer}
    if file.is_file():
        with np.load(file, allow_pickle=False) as stored:
            kept = dict(stored)
    for form in scored:
        for split in data.validation:
            rows = [made[id(tokenizer)][split] for tokenizer in forms.tokenizers(ctx, form)]
            if (key := f"{form.name}|{split}") in kept:
                continue
            ctx.say(f"evaluate/{data.task.name}: {form.name}, {len(rows[0])} rows of {split}")
            try:
                kept[key] = _score(ctx, form, data.task.name, rows)
            except Exception as error:
                # One form that fails is a row of the report; without the reference there is none.
                if form.name == forms.reference(ctx) or isinstance(error, OSError):
                    raise
                failed[form.name] = reason(error)
                break
            _write_arrays(file, kept)
    for form in scored:
        for split, encoded in made[id(ctx.tokenizer)].items():
            assert encoded.labels is not None
            if form.name not in failed:
                yield form.name, split, kept[f"{form.name}|{split}"], encoded.labels


def _score(ctx: Context, form: forms.Form, task: str, rows: list[Encoded]) -> np.ndarray:
    """Logits of a form; `rows` are the task's, as each of its models reads them."""
    answers = []
    for path, tokenizer, encoded in zip(forms.paths(ctx, form, task), forms.tokenizers(ctx, form), rows, strict=True):
        run, left = forms.engine(ctx, form, path, tokenizer).run, tokenizer.padding_side == "left"
        budget = 1 if form.alone else 16384
        answers.append(predict(run, encoded, pad_id=tokenizer.pad_token_id, left=left, tokens=budget))
    logits = average(answers, ctx.weights(form.stage, task) if len(answers) > 1 else None)
    if not np.isfinite(logits).all():
        raise ValueError("its logits are not finite")
    return logits


def _write_arrays(file: Path, arrays: dict[str, np.ndarray]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.tmp.npz")
    np.savez(temporary, **arrays)  # type: ignore[arg-type]
    temporary.replace(file)


def _float_stage(form: forms.Form, compared: list[forms.Form]) -> str:
    """Stage with the float checkpoint that a form was made from."""
    return next(f.stage for f in compared if f.label == form.label and f.file is None)


def _times(
    ctx: Context, folder: Path, settings: Evaluate, compared: list[forms.Form], failed: dict[str, str]
) -> dict[str, dict[str, list[float]]]:
    """Form -> inputs -> milliseconds of each round, all forms in turn. Kept, so that a run that was stopped goes on."""
    file = folder / "latency.json"
    if file.is_file():
        stored = checkpoint.read_json(file)
        failed |= stored["failed"]
        kept: dict[str, dict[str, list[float]]] = stored["times"]
        return kept
    words = {form.name: forms.tokenizers(ctx, form) for form in compared}

    def synthetic(form: forms.Form, shape: list[int]) -> Batch:
        return _joined([_synthetic(ctx, tokenizer, shape) for tokenizer in words[form.name]])

    made: list[Engine] = []
    for form in compared:
        try:
            engine = _timed(ctx, folder, form)
            engine.run(synthetic(form, [1, settings.shapes[0][1]]))
            made.append(engine)
        except Exception as error:
            if form.name == forms.reference(ctx) or isinstance(error, OSError):
                raise
            failed[form.name] = reason(error)
    repeats = min(settings.repeats, ctx.config.limit.repeats or settings.repeats)
    least = latency.SMOKE_MS if ctx.config.limit.smoke else latency.LEAST_MS
    times: dict[str, dict[str, list[float]]] = {form.name: {} for form in compared}
    inputs: dict[str, dict[str, list[Batch]]] = {
        f"{rows}x{length}": {form.name: [synthetic(form, [rows, length])] for form in compared}
        for rows, length in _shapes(ctx, settings)
    }
    own = {id(t): _task_batches(ctx, t) for t in ctx.every_tokenizer}
    inputs[TASK_LENGTHS] = {
        name: [_joined(list(batches)) for batches in zip(*(own[id(t)] for t in several), strict=True)]
        for name, several in words.items()
    }
    for key, batches in inputs.items():
        ctx.say(f"evaluate: timing {len(made)} forms, {key}, {repeats} rounds")
        for (timed, _), values in latency.measure(made, {key: batches}, repeats=repeats, least_ms=least).items():
            times[timed][key] = values
    checkpoint.write_json(file, {"times": times, "failed": failed})
    return times


def _shapes(ctx: Context, settings: Evaluate) -> list[list[int]]:
    """Shapes to time: those asked for, and before them the one a speed was predicted at, so that of three the middle
    one, which speedups are of, stays the middle one.
    """
    target = ctx.config.target.shape
    extra = [target] if has_target(ctx.config) and target not in settings.shapes else []
    return [list(shape) for shape in dict.fromkeys(map(tuple, [*extra, *settings.shapes]))]


def _timed(ctx: Context, folder: Path, form: forms.Form) -> Engine:
    """A form of one task, as one engine. What is quantized is there; the teacher's ONNX files are made now."""
    task = forms.shown(ctx, form)
    paths = _paths(ctx, folder, form, task)
    if form.role == "teacher" and form.file:
        for source, path in zip(ctx.checkpoints(form.stage, task), paths, strict=True):
            if not path.is_file():
                with checkpoint.writing(path.parent) as temporary:
                    export_onnx(source, temporary / ONNX)
    models = zip(paths, forms.tokenizers(ctx, form), strict=True)
    parts = [forms.engine(ctx, form, path, tokenizer) for path, tokenizer in models]
    return parts[0] if len(parts) == 1 else together(form.name, parts, ctx.weights(form.stage, task))


def _paths(ctx: Context, folder: Path, form: forms.Form, task: str) -> list[Path]:
    """The models of a form, as they are timed: the teacher's ONNX files are made for that alone."""
    found = forms.paths(ctx, form, task)
    if form.role != "teacher" or not form.file:
        return found
    own = folder / "teacher"
    return [own / ONNX] if len(found) == 1 else [own / str(number + 1) / ONNX for number in range(len(found))]


def _joined(batches: list[Batch]) -> Batch:
    return batches[0] if len(batches) == 1 else joined(batches)


def _synthetic(ctx: Context, tokenizer: Any, shape: list[int]) -> Batch:
    """Random tokens that every model has, but for those that end or separate texts."""
    vocabulary = min(map(len, ctx.every_tokenizer))
    return latency.synthetic((shape[0], shape[1]), vocabulary, _last(tokenizer), without=tokenizer.all_special_ids)


def _last(tokenizer: Any) -> int | None:
    """The token that ends a text: BART and T5 answer where it stands."""
    last: int = tokenizer("a")["input_ids"][-1]
    return last if last in tokenizer.all_special_ids else None


def _task_batches(ctx: Context, tokenizer: Any) -> list[Batch]:
    """Rows drawn evenly from the validation splits of all tasks: for any tokenizer the same ones. In a batch are like
    lengths together, and either texts or pairs of them.
    """
    random = np.random.default_rng(0)
    tasks = [
        (len(data.task.columns), next(iter(_encoded(ctx, data, tokenizer).values()))) for data in ctx.tasks[0].values()
    ]
    drawn: dict[int, list[tuple[Encoded, int]]] = {}
    for (columns, rows), _ in zip(_cycle(tasks), range(TASK_ROWS), strict=False):
        drawn.setdefault(columns, []).append((rows, int(random.integers(len(rows)))))
    batches = []
    for alike in drawn.values():
        alike.sort(key=lambda pair: int(pair[0].lengths[pair[1]]))
        for start in range(0, len(alike), TASK_BATCH):
            part = alike[start : start + TASK_BATCH]
            ids = [rows.ids[rows.offsets[i] : rows.offsets[i + 1]] for rows, i in part]
            joined = Encoded(np.concatenate(ids), np.cumsum([0, *map(len, ids)]), None, None)
            left = tokenizer.padding_side == "left"
            batches.append(pad(joined, range(len(part)), tokenizer.pad_token_id, left))
    return batches


def _cycle(values: list[tuple[int, Encoded]]) -> Iterator[tuple[int, Encoded]]:
    while True:
        yield from values


def _model(
    ctx: Context,
    folder: Path,
    form: forms.Form,
    compared: list[forms.Form],
    predictions: dict[str, Any],
    times: dict[str, dict[str, list[float]]],
    settings: Evaluate,
) -> dict[str, Any]:
    """One row of `models` in results.json."""
    tasks = ctx.tasks[0]
    names = {task: data.task.metrics for task, data in tasks.items()}
    own, best = predictions[form.name], predictions[forms.reference(ctx)]
    scores = retained.scores(own, names)
    shapes = _shapes(ctx, settings)
    middle = "x".join(map(str, shapes[len(shapes) // 2]))
    task = forms.shown(ctx, form)
    paths = _paths(ctx, folder, form, task)
    sources = ctx.checkpoints(_float_stage(form, compared), task)
    sources = sources if form.member is None else [sources[form.member]]
    one = paths[0] if len(paths) == 1 and paths[0].is_relative_to(ctx.folder) else None
    large = "x".join(map(str, settings.shapes[-1]))
    return {
        "path": None if one is None else str(one.relative_to(ctx.folder)),
        "parameters": sum(map(parameters, sources)),
        "size_mib": sum(map(size_mib, paths)),
        "gmacs": sum(map(gmacs, sources)),
        "latency_ms": [_latency(inputs, values) for inputs, values in times[form.name].items()],
        "throughput_per_second": 1000 * settings.shapes[-1][0] / float(np.median(times[form.name][large])),
        "peak_memory_mib": None,
        "scores": {t: {m: {"mean": v, "std": None, "by_seed": [v]} for m, v in by.items()} for t, by in scores.items()},
        "glue": retained.glue_average(scores) if scores else None,
        "calibration_error": _calibration(own, tasks),
        "retained": _retained(own, best, names) if scores and form.name != forms.reference(ctx) else None,
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


def _speedup(
    form: forms.Form, compared: list[forms.Form], times: dict[str, dict[str, list[float]]], shape: str
) -> dict[str, Any]:
    """Against the teacher's fastest float32 form, of all and of those on the same backend."""
    teachers = [f for f in compared if f.role == "teacher" and f.scheme in forms.FLOAT32 and times.get(f.name)]
    backend = form.backend if form.backend in ("onnxruntime", "openvino") else "torch"
    fastest = min(teachers, key=lambda f: float(np.median(times[f.name][shape])))
    same = [f for f in teachers if f.backend == backend]  # none where the teacher does not run on it
    best = min(same, key=lambda f: float(np.median(times[f.name][shape])), default=None)
    headline = latency.speedup(times[fastest.name][shape], times[form.name][shape])
    return {
        "best_teacher": headline["median"],
        "ci95": headline["ci95"],
        "same_backend": best and latency.speedup(times[best.name][shape], times[form.name][shape])["median"],
    }
