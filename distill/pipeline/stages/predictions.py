"""The logits of an evaluate step's variants for the rows of the tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from distill.compression.quantization.quality_limits import rows_at_once
from distill.config.schemes import SCHEMES
from distill.data.encode import Encoded
from distill.data.tasks import TaskData
from distill.errors import reason
from distill.inference import runners, variants
from distill.inference.mixture import mixed
from distill.inference.predict import SCORED, predict
from distill.inference.variants import Variant
from distill.pipeline.stages.load_variants import Loader
from distill.pipeline.stages.shares import divided
from distill.runtime import progress
from distill.runtime.storage import atomic

if TYPE_CHECKING:
    from datasets import Dataset

Splits = Mapping[str, Encoded]
"""Split -> its encoded rows."""


@dataclass(frozen=True)
class Scoring:
    """A task, whose rows are scored."""

    data: TaskData
    splits: Mapping[str, Dataset]
    """Split -> its rows."""
    encoded: Mapping[int, Splits]
    """`id` of each tokenizer -> the same, encoded."""
    labels: Mapping[str, np.ndarray]
    """Split -> its labels."""


def scoring(loader: Loader, tokenizers: Sequence[Any], data: TaskData, splits: Mapping[str, Dataset]) -> Scoring:
    """The rows of a task's splits, encoded with the tokenizers of all models. Labels are those of the first one."""
    encoded = {id(each): loader.read_by(data, each).scored(splits, each, loader.runtime.longest) for each in tokenizers}
    labels = {split: rows.labels for split, rows in encoded[id(tokenizers[0])].items() if rows.labels is not None}
    return Scoring(data, splits, encoded, labels)


def predictions(
    loader: Loader, of_task: Scoring, failed: dict[str, str]
) -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
    """(variant, split, logits, labels) of one task, of the variants that are scored. Logits are stored, so that a
    stopped run resumes. `failed`: variant -> why it failed; variants that fail here are added."""
    found = {}
    for variant in (firsts := _scored(loader, failed)):
        with failing(variant, failed):
            found[variant.name] = _stored(loader, variant, of_task)
    for variant, names in firsts.items():
        for name in names:
            if variant.name in failed:
                failed[name] = failed[variant.name]
                continue
            for split, labels in of_task.labels.items():
                yield name, split, found[variant.name][split], labels


def _scored(loader: Loader, failed: Mapping[str, str]) -> dict[Variant, list[str]]:
    """Variants that are scored -> the names of all that run the same file, which have the same logits."""
    every = [variant for variant in loader.variants if variant.scored and variant.name not in failed]
    firsts = loader.firsts(every)
    return {
        variant: [name for name, first in firsts.items() if first == variant.name]
        for variant in every
        if firsts[variant.name] == variant.name
    }


def score_share(loader: Loader, of_tasks: Sequence[Scoring], failed: Mapping[str, str]) -> None:
    """Score and store the share of this process, if there are several: each variant on each task is scored by one.

    What fails is left to the main process, which tries it again, and says why.
    """
    machine = loader.runtime.machine
    accelerator = machine.accelerator
    if accelerator.num_processes == 1:
        return
    own = replace(loader, threads=machine.shared_threads)
    jobs = {
        (number, variant): float(sum(map(len, of_task.splits.values())))
        for number, of_task in enumerate(of_tasks)
        for variant in _scored(loader, failed)
    }
    for number, variant in divided(jobs, accelerator.num_processes)[accelerator.process_index]:
        with failing(variant, {}):
            _stored(own, variant, of_tasks[number])


def _stored(loader: Loader, variant: Variant, of_task: Scoring) -> dict[str, np.ndarray]:
    """Split -> logits of a variant, from its file for the task. What that lacks is computed, and added to it."""
    file = loader.folder / of_task.data.task.name / f"{variant.name.replace(' ', '_')}.npz"
    logits: dict[str, np.ndarray] = {}
    if file.is_file():
        with np.load(file, allow_pickle=False) as stored:
            logits = dict(stored)
    missing = {split: rows for split, rows in of_task.splits.items() if split not in logits}
    for split, outputs in _logits(loader, variant, of_task.data, missing, of_task.encoded):
        logits[split] = outputs
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic.write_arrays(file, logits)
    return logits


@contextmanager
def failing(variant: Variant, failed: dict[str, str]) -> Iterator[None]:
    """Add the variant to `failed`, with the reason, if the block raises an error: the report shows it as such.

    Errors of the reference, which the report needs, and of files are raised.
    """
    try:
        yield
    except Exception as error:
        if variant.name == variants.REFERENCE or isinstance(error, OSError):
            raise
        failed[variant.name] = reason(error)


def _logits(
    loader: Loader, variant: Variant, data: TaskData, splits: Mapping[str, Dataset], encoded: Mapping[int, Splits]
) -> Iterator[tuple[str, np.ndarray]]:
    """(split, logits [rows, C]) of a variant, which is loaded once, and not for rows that it was scored on before.

    Raises:
        ValueError: for logits that are not finite.
    """
    task, machine = data.task.name, loader.runtime.machine
    stored = loader.development(variant, task) if splits else {}
    labels = {split: encoded[id(loader.tokenizers(variant)[0])][split].labels for split in splits}
    # An earlier version stored those of more rows.
    known = {s: found for s, found in stored.items() if (own := labels.get(s)) is not None and len(found) == len(own)}
    if todo := [f"{len(rows)} rows of {split}" for split, rows in splits.items() if split not in known]:
        machine.log(f"evaluate/{task}: {variant.name}, {' and '.join(todo)}")
    models: list[runners.Runner] = []
    for split in splits:
        if split in known:
            outputs = known[split]
        else:
            models = models or loader.parts(variant, task, many=True)
            inputs = [encoded[id(tokenizer)][split] for tokenizer in loader.tokenizers(variant)]
            outputs = _outputs(loader, variant, task, models, inputs)
        if not np.isfinite(outputs).all():
            raise ValueError("its logits are not finite")
        yield split, outputs


def _outputs(
    loader: Loader, variant: Variant, task: str, models: Sequence[runners.Runner], inputs: Sequence[Encoded]
) -> np.ndarray:
    """Logits [rows, C] of a variant. `models`, `inputs`: its models, and the rows encoded for each of them."""
    scheme, by_model = SCHEMES.get(variant.key or ""), []
    for runner, tokenizer, encoded in zip(models, loader.tokenizers(variant), inputs, strict=True):
        with progress.counted(f"scoring {variant.name}", len(encoded.sequences)) as done:
            run, left = _counting(runner.run, done), tokenizer.padding_side == "left"
            rows = None if scheme is None else rows_at_once(scheme)
            outputs = predict(run, encoded, pad_id=tokenizer.pad_token_id, left=left, tokens=SCORED, rows=rows)
        by_model.append(outputs[:, loader.models.columns[task]] if loader.whole(variant) else outputs)
    weights = loader.weights(variant, task) if len(by_model) > 1 else None
    return mixed(loader.tasks[task].task.kind, by_model, weights)


def _counting(run: runners.Run, done: Callable[[int], None]) -> runners.Run:
    """`run`, which calls `done` with the rows of each batch."""

    def counted(batch: runners.Batch) -> np.ndarray:
        outputs = run(batch)
        done(len(outputs))
        return outputs

    return counted
