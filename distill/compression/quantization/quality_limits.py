"""Limits the loss of score by quantization: the most sensitive modules stay float, or the scheme is refused."""

from __future__ import annotations

import functools
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from distill.compression.quantization.fake_quantization import faked
from distill.compression.quantization.quantize import MAKE, always_float, embeddings, linears, unfit
from distill.config.schemes import ONNX, Scheme
from distill.data.collate import pad
from distill.data.development_split import deciding
from distill.data.encode import Encoded
from distill.data.task import Task
from distill.data.task_model import load_for
from distill.data.tasks import TaskData
from distill.evaluation import resamples, retained
from distill.evaluation.clusters import clusters
from distill.evaluation.metrics import finite
from distill.inference import runners
from distill.inference.predict import SCORED, predict
from distill.inference.runners import Batch, Run
from distill.inference.timing import TASK_BATCH
from distill.runtime import progress
from distill.runtime.machine import Machine

RESAMPLES = 1000
"""Resamples of the development rows by which a loss is distinguished from noise."""

SENSITIVITY_ROWS = 64
"""Training rows on which the sensitivity of modules is measured."""


@dataclass(frozen=True)
class Quality:
    """The quality of a model on a task's development rows."""

    score: float
    """Mean over splits of the mean of the task's metrics, in points."""
    recalls: dict[str, tuple[float, int]]
    """Label, or type of spans -> (recall in percent, number of its rows); empty for numbers."""
    predictions: retained.Predictions = field(default_factory=dict)
    """Predictions and labels from which the score is computed; empty if they are unknown."""
    task: Task | None = None
    clusters: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)
    """(task, split) -> parts of its rows that are drawn together, where some share a text."""
    logits: dict[str, np.ndarray] = field(default_factory=dict)
    """Split -> logits of its rows, as from `predict`."""


@dataclass(frozen=True)
class Limits:
    """Maximum losses of a quantized model. None sets no maximum.

    A loss that may be noise, because its 95% interval includes 0, exceeds no limit.
    """

    drop: float | None = None
    """Of the score, in points."""
    recall_drop: float | None = None
    """Of the recall of each label, in points; one row may always be lost."""

    def exceeded(self, before: Quality, after: Quality) -> str | None:
        """A description of the largest loss above a limit; None if all losses are within the limits."""
        # Negated comparisons, because a loss that is not a number must exceed every limit.
        drop = before.score - after.score
        if self.drop is not None and not drop <= self.drop:
            if not np.isfinite(drop) or _least(score_losses, before, after) > min(self.drop, 0):
                return f"{drop:.1f} points, more than max_drop={self.drop:g}"
        if self.recall_drop is None:
            return None
        lost = {label: recall - after.recalls[label][0] for label, (recall, _) in before.recalls.items()}
        over = [
            label
            for label, (_, rows) in before.recalls.items()
            if not lost[label] <= max(self.recall_drop, 100 / rows) + 1e-9
            and _least(functools.partial(recall_losses, label), before, after) > 0
        ]
        if not over:
            return None
        worst = max(over, key=lambda label: lost[label])
        return f"{lost[worst]:.1f} points of recall of {worst}, more than max_recall_drop={self.recall_drop:g}"


def limits_of(drop: float | None, recall_drop: float | None, task: Task, smoke: bool) -> Limits:
    """The maximum losses on a task: none under limit=smoke, and on a task that is not in the headline."""
    return Limits() if smoke or not task.in_headline else Limits(drop, recall_drop)


def _least(losses: Callable[[Quality, Quality], np.ndarray], before: Quality, after: Quality) -> float:
    """Lower end of the 95% interval of the loss. It is infinite where it is unknown, so that the loss then does not
    count as noise."""
    known = before.predictions and after.predictions
    ends = resamples.interval(losses(before, after)) if known else None
    return math.inf if ends is None else ends[0]


def score_losses(before: Quality, after: Quality) -> np.ndarray:
    """`[RESAMPLES]` points by which the score is lower after quantization, on the same resampled rows for both.

    before, after: with a task, and with predictions for the same rows.

    Raises:
        ValueError: for predictions for different rows.
    """
    assert before.task is not None
    models, names = {"before": before.predictions, "after": after.predictions}, {before.task.name: before.task.metrics}
    drawn = retained.drawn(models, names, RESAMPLES, before.clusters)
    losses: np.ndarray = retained.average(drawn["before"]) - retained.average(drawn["after"])
    return losses


def recall_losses(label: str, before: Quality, after: Quality) -> np.ndarray:
    """`[RESAMPLES]` points by which the recall of a label is lower, as in `score_losses`; NaN on a resample without it.

    before, after: of a task whose kind has labels.
    """
    sums = np.zeros((RESAMPLES, 3))
    for key, (ours, truth) in before.predictions.items():
        first, second = (_recalled(before, part, truth) for part in (ours, after.predictions[key][0]))
        if label in first:  # else no row of this split has it
            columns = np.column_stack([first[label], second[label][:, 0]]).astype(np.float64)
            sums += resamples.sums(columns, resamples.seed_of(*key), RESAMPLES, before.clusters.get(key))
    kept, total, kept_after = sums.T
    return 100 * np.divide(kept - kept_after, total, out=np.full(RESAMPLES, np.nan), where=total > 0)


def _recalled(quality: Quality, predicted: np.ndarray, truth: np.ndarray) -> dict[str, np.ndarray]:
    assert quality.task is not None
    assert quality.task.kind.recalled is not None
    return quality.task.kind.recalled(predicted, truth, quality.task.labels)


@dataclass(frozen=True)
class Quantized:
    """A quantized model, of one task or of several."""

    floats: list[str]
    """Its modules in float."""
    qualities: list[Quality]
    """Its quality on the development rows of each task; empty if it was not scored."""


@dataclass(frozen=True)
class Source:
    """A task's checkpoint to be quantized, with its data."""

    folder: Path
    tokenizer: Any
    data: TaskData
    rows: list[Batch]
    """Training rows, each a batch of its own, for calibration and sensitivities."""
    development: dict[str, Encoded]
    """Split -> rows on which the quantized model is scored."""

    @functools.cached_property
    def clusters(self) -> dict[tuple[str, str], np.ndarray]:
        """As in `Quality`. Kinds with groups draw these."""
        found, task = dict[tuple[str, str], np.ndarray](), self.data.task
        for split, encoded in self.development.items():
            alone = encoded.labels is not None and encoded.labels.dtype.names is None
            parts = clusters([self.data.development[split][name] for name in task.columns]) if alone else None
            found |= {} if parts is None else {(task.name, split): parts}
        return found


def source_of(folder: Path, tokenizer: Any, data: TaskData, examples: int, max_length: int, seed: int) -> Source:
    """A task's checkpoint with at most `examples` training rows, drawn at random, and the development rows that decide.

    Of windows at most `examples` are drawn from those of all drawn rows, not the many of a few long texts.
    """
    random, count = np.random.default_rng(seed), min(examples, len(data.train))
    drawn = random.permutation(len(data.train))[:count]
    encoded = data.encoded(data.train.select(drawn), tokenizer, max_length)
    left, every = tokenizer.padding_side == "left", np.arange(len(encoded.sequences))
    if data.task.kind.windowed and len(every) > examples:
        every = np.sort(random.permutation(every)[:examples])
    rows = [pad(encoded, [row], tokenizer.pad_token_id, left) for row in every[:examples].tolist()]
    data = replace(data, development=deciding(data))
    return Source(folder, tokenizer, data, rows, data.scored(data.development, tokenizer, max_length))


def guarded(
    scheme: Scheme,
    source: Source,
    out: Path,
    floats: Floats,
    limits: Limits,
    log: Callable[[str], None],
) -> Quantized:
    """Quantize into the folder `out`, leaving modules in float until the model loses no more than the limits.

    The number of modules in float is doubled, from the most sensitive one on, up to half of them; modules whose sizes
    the scheme does not support are in float too. Without limits the model is not scored.

    Raises:
        ValueError: if it still loses more.
    """
    unfit, kept = floats.unfit(scheme), list[str]()
    while True:
        remove(out / scheme.file)
        start = out / ONNX if scheme.onnx else source.folder
        with progress.waiting(f"quantizing, {scheme.backend} {scheme.scheme}"):
            MAKE[scheme.name](start, out / scheme.file, [*floats.always, *kept], source.rows)
        if limits == Limits():
            return Quantized(unfit, [])
        run = load(scheme, out / scheme.file, floats.machine)
        with progress.waiting(f"scoring, {scheme.backend} {scheme.scheme}"):
            after = quality(run, source, rows_at_once(scheme))
        lost = limits.exceeded(floats.quality, after)
        if lost is None:
            return Quantized(unfit + kept, [after])
        log(f"{scheme.backend} {scheme.scheme} loses {lost} with {len(kept)} modules left in float")
        order = [name for name in floats.order(scheme) if name not in unfit]
        half = len(order) // 2
        if len(kept) >= half:
            raise ValueError(f"it loses {lost}, even with {half} of {len(order)} modules left in float")
        kept = order[: min(max(1, 2 * len(kept)), half)]


def guarded_heads(
    scheme: Scheme, out: Path, floats: Sequence[Floats], limits: Sequence[Limits], log: Callable[[str], None]
) -> Quantized:
    """As `guarded`, for the file with the encoder and the heads of several tasks. No task may lose more than its
    limits.

    Each task that loses more doubles its own number of modules in float, up to half of the modules, from its most
    sensitive one on. A module stays in float if any task leaves it in float. Ranges of activations are measured on the
    rows of all tasks.

    Raises:
        ValueError: if a task still loses more.
    """
    assert scheme.onnx
    kept: list[list[str]] = [[] for _ in floats]
    rows = [row for each in zip(*(f.source.rows for f in floats), strict=False) for row in each]
    ends = np.cumsum([0, *(each.source.data.task.outputs for each in floats)])
    while True:
        remove(out / scheme.file)
        names = list(dict.fromkeys(name for part in kept for name in part))
        MAKE[scheme.name](out / ONNX, out / scheme.file, ["heads", *floats[0].always, *names], rows)
        if all(limit == Limits() for limit in limits):
            return Quantized([], [])
        run, more, qualities = (
            load(scheme, out / scheme.file, floats[0].machine),
            list[tuple[int, str]](),
            list[Quality](),
        )
        for number, (each, limit) in enumerate(zip(floats, limits, strict=True)):
            part = _columns(run, ends[number], ends[number + 1])
            after = quality(part, each.source, rows_at_once(scheme))
            qualities.append(after)
            lost = limit.exceeded(each.quality, after)
            if lost is not None:
                more.append((number, lost))
        if not more:
            return Quantized(names, qualities)
        for number, lost in more:
            task, order = floats[number].source.data.task.name, floats[number].order(scheme)
            log(f"{scheme.backend} {scheme.scheme} loses {lost} on {task} with {len(names)} modules left in float")
            half = len(order) // 2
            if len(kept[number]) >= half:
                raise ValueError(f"it loses {lost} on {task}, even with {half} of its {len(order)} modules in float")
            kept[number] = order[: min(max(1, 2 * len(kept[number])), half)]


def _columns(run: Run, start: int, end: int) -> Run:
    """`run` with some columns of its outputs alone."""
    return lambda batch: run(batch)[:, start:end]


def load(scheme: Scheme, path: Path, machine: Machine) -> Run:
    """The quantized model at `path`, as a function from a batch to logits that do not depend on the other rows."""
    return runners.load(
        scheme.scheme,
        path,
        backend=scheme.backend,
        scheme=scheme.scheme,
        device=machine.device.type,
        threads=machine.threads,
        row_by_row=scheme.row_by_row,
        many=True,
    ).run


def rows_at_once(scheme: Scheme) -> int | None:
    """Rows of a batch in which a quantized model is scored; None for batches of tokens.

    bitsandbytes leaves a column in float if any row of the batch has an outlier there. Its batches therefore have as
    many rows as the timed ones.
    """
    return None if scheme.onnx else TASK_BATCH


def quality(run: Run, source: Source, rows: int | None = None) -> Quality:
    """Score and recalls on the development splits. `rows`: as from `rows_at_once`."""
    left, predictions, task, found = source.tokenizer.padding_side == "left", {}, source.data.task, {}
    for split, encoded in source.development.items():
        logits = predict(run, encoded, pad_id=source.tokenizer.pad_token_id, left=left, tokens=SCORED, rows=rows)
        assert encoded.labels is not None
        predictions[task.name, split] = (task.graded(finite(logits), encoded.labels), encoded.labels)
        found[split] = logits
    score = retained.macro_score(retained.scores(predictions, {task.name: task.metrics}))
    predicted, labels = map(np.concatenate, zip(*predictions.values(), strict=True))
    recalls = task.kind.recalls(predicted, labels, task.labels)
    return Quality(score, recalls, predictions, task, source.clusters, found)


class Floats:
    """The float32 model of a task, and which of its modules to leave in float: some always, others by sensitivity."""

    def __init__(self, machine: Machine, source: Source) -> None:
        self.source, self.machine = source, machine
        self.orders: dict[tuple[str, bool], list[str]] = {}
        self.model = load_for(source.data.task, source.folder, pad_id=source.tokenizer.pad_token_id)
        self.model.to(machine.device).eval()
        self.always = always_float(self.model)
        self.run = runners.torch_run(self.model, scheme="fp32", device=machine.device.type, threads=machine.threads)

    @functools.cached_property
    def quality(self) -> Quality:
        """Score and recalls of the float32 model."""
        return quality(self.run, self.source)

    def unfit(self, scheme: Scheme) -> list[str]:
        """Linear modules whose sizes a scheme does not support. Raises ValueError if it supports no module."""
        every, found = linears(self.model), unfit(self.model, scheme.name)
        if every and len(found) == len(every):
            raise ValueError(f"none of the {len(every)} linear modules has sizes that {scheme.scheme} supports")
        return found

    def order(self, scheme: Scheme) -> list[str]:
        """Modules that a scheme quantizes, most sensitive first.

        The sensitivity of a module is the mean squared change of the logits, of words those of real tokens, on training
        rows when only this module is rounded.
        """
        if (key := (scheme.rounding, scheme.tables)) not in self.orders:
            rows = self.source.rows[:SENSITIVITY_ROWS]
            exact = [self.run(row) for row in rows]
            names = linears(self.model) + (embeddings(self.model) if scheme.tables else [])
            changes = {}
            with progress.counted("sensitivity of modules", len(names)) as done:
                for name in names:
                    with faked(self.model, [name], scheme.rounding):
                        changes[name] = float(
                            np.mean([_change(self.run(r), e, r) for r, e in zip(rows, exact, strict=True)])
                        )
                    done(1)
            self.orders[key] = sorted(changes, key=lambda name: -changes[name])
        return self.orders[key]


def _change(outputs: np.ndarray, exact: np.ndarray, row: Batch) -> float:
    """Mean squared difference of the outputs of a row, [1, C] or, of tokens, [1, L, C] without padding."""
    changes = np.square(outputs - exact)
    return float(changes[row["attention_mask"] > 0].mean() if changes.ndim == 3 else changes.mean())


def remove(path: Path) -> None:
    """Remove a file or a folder, if it exists."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
