"""Quantize stage: the student of every task in fewer bits, and the float32 ONNX file that some forms start from."""

from __future__ import annotations

import functools
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

from distill import checkpoint, teacher
from distill.compress.fake import faked
from distill.compress.quantize import ONNX, SCHEMES, Scheme, always_float, embeddings, linears
from distill.config import Quantize
from distill.data.collate import pad
from distill.data.encode import Encoded, encode_task
from distill.data.tasks import TaskData
from distill.evaluate import engines, retained
from distill.evaluate.engines import Batch, Run
from distill.evaluate.predict import predict
from distill.export.onnx import export_onnx, onnx_parity
from distill.stages.context import Context

SENSITIVITY_ROWS = 64


@dataclass(frozen=True)
class Source:
    """What is quantized: a task's checkpoint, with rows to measure ranges on and rows to judge by."""

    folder: Path
    tokenizer: Any
    data: TaskData
    rows: list[Batch]
    validation: dict[str, Encoded]


def run(ctx: Context, name: str, settings: Quantize) -> dict[str, Any]:
    began, made = time.monotonic(), {}
    for task, data in ctx.tasks[0].items():
        folder = ctx.folder / name / task
        if not checkpoint.finished(folder):
            ctx.say(f"{name}/{task}: {', '.join(settings.schemes)}")
            source = _source(ctx, name, settings, data)
            with checkpoint.writing(folder) as temporary:
                checkpoint.write_json(
                    temporary / checkpoint.MANIFEST, _quantize(ctx, name, settings, source, temporary)
                )
        made[task] = checkpoint.read_json(folder / checkpoint.MANIFEST)
    failed = {scheme: f"{task}: {text}" for task, m in made.items() for scheme, text in m["failed"].items()}
    manifest = {
        "schemes": settings.schemes,
        "failed": failed,
        "kept": {task: m["kept"] for task, m in made.items()},
        "onnx_difference": {task: m.get("onnx_difference") for task, m in made.items()},
        "seconds": time.monotonic() - began,
    }
    checkpoint.write_json(ctx.folder / name / checkpoint.MANIFEST, manifest)
    return manifest


def _source(ctx: Context, name: str, settings: Quantize, data: TaskData) -> Source:
    _, tokenizer = ctx.tokenizer_of(settings.start)
    longest, count = ctx.config.tasks.max_length, min(settings.examples, len(data.train))
    drawn = np.random.default_rng(ctx.config.seed).permutation(len(data.train))[:count]
    encoded = encode_task(data.train.select(drawn), data.task.columns, tokenizer, longest)
    left = tokenizer.padding_side == "left"
    rows = [pad(encoded, [row], tokenizer.pad_token_id, left) for row in range(count)]
    validation = {
        split: encode_task(given, data.task.columns, tokenizer, longest) for split, given in data.validation.items()
    }
    return Source(ctx.checkpoint(settings.start, data.task.name), tokenizer, data, rows, validation)


def _quantize(ctx: Context, name: str, settings: Quantize, source: Source, out: Path) -> dict[str, Any]:
    """Make every scheme. One that fails is kept with its reason: it is a row of the report, not the end of the run."""
    place, failed = f"{name}/{source.data.task.name}", dict[str, str]()
    floats, limit = Floats(ctx, source), _limit(ctx, settings, source)

    def tried(what: str, file: str, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except (OSError, SafetensorError):  # a full disk is not the scheme's
            raise
        except Exception as error:
            for left in (out / file, out / f".{file}.tmp"):
                _remove(left)
            failed[what] = reason(error)
            return None

    def exported() -> float:
        export_onnx(source.folder, out / ONNX)
        return onnx_parity(source.folder, out / ONNX)

    manifest: dict[str, Any] = {"failed": failed, "kept": {}}
    if any(SCHEMES[scheme].onnx for scheme in settings.schemes):
        manifest["onnx_difference"] = tried(ONNX, ONNX, exported)
    for scheme in settings.schemes:
        one = SCHEMES[scheme]
        if one.onnx and ONNX in failed:
            failed[scheme] = failed[ONNX]
        elif kept := tried(scheme, one.file, functools.partial(_make, ctx, place, one, source, out, floats, limit)):
            manifest["kept"][scheme] = kept
    return manifest


def _limit(ctx: Context, settings: Quantize, source: Source) -> float | None:
    """Points that a form may lose; None where a score tells too little to judge by."""
    return None if ctx.config.limit.smoke or source.data.task.name == retained.NOISE else settings.max_drop


def _make(
    ctx: Context, place: str, one: Scheme, source: Source, out: Path, floats: Floats, limit: float | None
) -> list[str]:
    """Make a form, with as many modules left in float as it takes to stay within `limit`. Returns their names, and
    those of linear modules of sizes that the scheme cannot take.
    """
    unfit, kept = floats.unfit(one), list[str]()
    while True:
        _remove(out / one.file)
        one.make(out / ONNX if one.onnx else source.folder, out / one.file, [*floats.always, *kept], source.rows)
        if limit is None:
            return unfit
        drop = floats.score - score(_load(ctx, one, out / one.file), source, alone=one.alone)
        if drop <= limit:
            return unfit + kept
        ctx.say(f"{place}: {one.backend} {one.scheme} loses {drop:.1f} points with {len(kept)} modules left in float")
        order = [name for name in floats.order(one) if name not in unfit]
        most = len(order) // 2
        if len(kept) >= most:
            raise ValueError(
                f"it loses {drop:.1f} points, more than max_drop={limit:g}, even with {most} of {len(order)} modules "
                "left in float"
            )
        kept = order[: min(max(1, 2 * len(kept)), most)]


def _load(ctx: Context, one: Scheme, path: Path) -> Run:
    device = ctx.accelerator.device.type
    return engines.load(
        one.scheme, path, backend=one.backend, scheme=one.scheme, device=device, threads=ctx.threads
    ).run


def score(run: Run, source: Source, alone: bool = False) -> float:
    """Mean over splits of the mean of the task's metrics, in points."""
    left, found = source.tokenizer.padding_side == "left", {}
    for split, encoded in source.validation.items():
        tokens = 1 if alone else 16384
        logits = predict(run, encoded, pad_id=source.tokenizer.pad_token_id, left=left, tokens=tokens)
        assert encoded.labels is not None
        found[source.data.task.name, split] = (logits, encoded.labels)
    scores = retained.scores(found, {source.data.task.name: source.data.task.metrics})
    return retained.glue_average(scores)


class Floats:
    """What of a task's model is left in float: always, and in the order of what it costs not to."""

    def __init__(self, ctx: Context, source: Source) -> None:
        self.source, self.device = source, ctx.accelerator.device
        self.orders: dict[tuple[str, bool], list[str]] = {}
        count = source.data.task.num_labels
        self.model = teacher.load_classifier(source.folder, count, pad_id=source.tokenizer.pad_token_id)
        self.model.to(self.device).eval()
        self.always = always_float(self.model)
        self.run = engines.torch_run(
            self.model,
            scheme="fp32_medium" if ctx.fast_float32 else "fp32",
            device=self.device.type,
            threads=ctx.threads,
        )

    @functools.cached_property
    def score(self) -> float:
        """Of the model in float32, in points."""
        return score(self.run, self.source)

    def unfit(self, one: Scheme) -> list[str]:
        """Linear modules of sizes that a scheme cannot take. ValueError where these are all."""
        every = linears(self.model)
        found = [name for name in every if one.fits is not None and not one.fits(self.model.get_submodule(name))]
        if len(found) == len(every):
            raise ValueError(f"none of the {len(every)} linear modules has sizes that {one.scheme} can take")
        return found

    def order(self, one: Scheme) -> list[str]:
        """What a scheme rounds, from the module whose rounding, alone, changes the logits of training rows most."""
        if (key := (one.rounding, one.tables)) not in self.orders:
            rows = self.source.rows[:SENSITIVITY_ROWS]
            exact = [self.run(row) for row in rows]
            changed = {}
            for name in linears(self.model) + (embeddings(self.model) if one.tables else []):
                with faked(self.model, [name], one.rounding):
                    changed[name] = float(
                        np.mean([np.square(self.run(r) - e).mean() for r, e in zip(rows, exact, strict=True)])
                    )
            self.orders[key] = sorted(changed, key=lambda name: -changed[name])
        return self.orders[key]


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def reason(error: BaseException) -> str:
    """One line for a row that failed."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:200]
