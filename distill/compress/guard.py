"""A guard over quantization: the modules that hurt a task's score most stay float, or the scheme is refused."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distill import teacher
from distill.compress.fake import faked
from distill.compress.quantize import FITS, MAKE, always_float, embeddings, linears
from distill.data.collate import pad
from distill.data.encode import Encoded, encode_task
from distill.data.tasks import TaskData
from distill.evaluate import engines, retained
from distill.evaluate.engines import Batch, Run
from distill.evaluate.predict import predict
from distill.machine import Machine
from distill.schemes import ONNX, Scheme

SENSITIVITY_ROWS = 64


@dataclass(frozen=True)
class Source:
    """What is quantized: a task's checkpoint, with rows to measure ranges on and rows to judge by."""

    folder: Path
    tokenizer: Any
    data: TaskData
    rows: list[Batch]
    validation: dict[str, Encoded]


def source_of(folder: Path, tokenizer: Any, data: TaskData, examples: int, max_length: int, seed: int) -> Source:
    """A task's checkpoint with at most `examples` training rows, drawn evenly, and all validation rows."""
    count = min(examples, len(data.train))
    drawn = np.random.default_rng(seed).permutation(len(data.train))[:count]
    encoded = encode_task(data.train.select(drawn), data.task.columns, tokenizer, max_length)
    left = tokenizer.padding_side == "left"
    rows = [pad(encoded, [row], tokenizer.pad_token_id, left) for row in range(count)]
    validation = {
        split: encode_task(given, data.task.columns, tokenizer, max_length) for split, given in data.validation.items()
    }
    return Source(folder, tokenizer, data, rows, validation)


def guarded(
    scheme: Scheme,
    source: Source,
    out: Path,
    floats: Floats,
    limit: float | None,
    say: Callable[[str], None],
) -> list[str]:
    """Quantize into `out`, with as many modules left in float as it takes to lose no more than `limit` points.

    Returns the names of these modules, and of linear modules of sizes that the scheme cannot take. None sets no limit.
    ValueError where half the modules in float are not enough.
    """
    unfit, kept = floats.unfit(scheme), list[str]()
    while True:
        remove(out / scheme.file)
        start = out / ONNX if scheme.onnx else source.folder
        MAKE[scheme.name](start, out / scheme.file, [*floats.always, *kept], source.rows)
        if limit is None:
            return unfit
        run = load(scheme, out / scheme.file, floats.machine)
        drop = floats.score - score(run, source, row_by_row=scheme.row_by_row)
        if drop <= limit:
            return unfit + kept
        say(f"{scheme.backend} {scheme.scheme} loses {drop:.1f} points with {len(kept)} modules left in float")
        order = [name for name in floats.order(scheme) if name not in unfit]
        most = len(order) // 2
        if len(kept) >= most:
            raise ValueError(
                f"it loses {drop:.1f} points, more than max_drop={limit:g}, even with {most} of {len(order)} modules "
                "left in float"
            )
        kept = order[: min(max(1, 2 * len(kept)), most)]


def load(scheme: Scheme, path: Path, machine: Machine) -> Run:
    """What a scheme made of a task's model, as a callable."""
    device = machine.device.type
    return engines.load(
        scheme.scheme, path, backend=scheme.backend, scheme=scheme.scheme, device=device, threads=machine.threads
    ).run


def score(run: Run, source: Source, row_by_row: bool = False) -> float:
    """Mean over splits of the mean of the task's metrics, in points."""
    left, predictions = source.tokenizer.padding_side == "left", {}
    for split, encoded in source.validation.items():
        tokens = 1 if row_by_row else 16384
        logits = predict(run, encoded, pad_id=source.tokenizer.pad_token_id, left=left, tokens=tokens)
        assert encoded.labels is not None
        predictions[source.data.task.name, split] = (logits, encoded.labels)
    scores = retained.scores(predictions, {source.data.task.name: source.data.task.metrics})
    return retained.glue_average(scores)


class Floats:
    """Which modules of a task's model are left in float: some always, the others in the order of their cost."""

    def __init__(self, machine: Machine, source: Source) -> None:
        self.source, self.machine = source, machine
        self.orders: dict[tuple[str, bool], list[str]] = {}
        count = source.data.task.num_labels
        self.model = teacher.load_classifier(source.folder, count, pad_id=source.tokenizer.pad_token_id)
        self.model.to(machine.device).eval()
        self.always = always_float(self.model)
        self.run = engines.torch_run(
            self.model, scheme=machine.float32, device=machine.device.type, threads=machine.threads
        )

    @functools.cached_property
    def score(self) -> float:
        """Of the model in float32, in points."""
        return score(self.run, self.source)

    def unfit(self, scheme: Scheme) -> list[str]:
        """Linear modules of sizes that a scheme cannot take. ValueError where these are all."""
        every = linears(self.model)
        fits = FITS.get(scheme.name, lambda module: True)
        unfit = [name for name in every if not fits(self.model.get_submodule(name))]
        if len(unfit) == len(every):
            raise ValueError(f"none of the {len(every)} linear modules has sizes that {scheme.scheme} can take")
        return unfit

    def order(self, scheme: Scheme) -> list[str]:
        """What a scheme rounds, from the module whose rounding, alone, changes the logits of training rows most."""
        if (key := (scheme.rounding, scheme.tables)) not in self.orders:
            rows = self.source.rows[:SENSITIVITY_ROWS]
            exact = [self.run(row) for row in rows]
            changed = {}
            for name in linears(self.model) + (embeddings(self.model) if scheme.tables else []):
                with faked(self.model, [name], scheme.rounding):
                    changed[name] = float(
                        np.mean([np.square(self.run(r) - e).mean() for r, e in zip(rows, exact, strict=True)])
                    )
            self.orders[key] = sorted(changed, key=lambda name: -changed[name])
        return self.orders[key]


def remove(path: Path) -> None:
    """Remove a file or a folder, where there is one."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
