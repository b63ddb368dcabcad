"""The logits of an evaluate step's variants for the rows of the tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from distill.data.encode import Encoded
from distill.data.tasks import TaskData
from distill.errors import reason
from distill.inference import runners, timing, variants
from distill.inference.mixture import average
from distill.inference.predict import predict
from distill.inference.variants import Variant
from distill.pipeline.stages.load_variants import Loader
from distill.runtime import progress
from distill.runtime.storage import atomic

if TYPE_CHECKING:
    from datasets import Dataset


def predictions(
    loader: Loader,
    tokenizers: Sequence[Any],
    data: TaskData,
    splits: Mapping[str, Dataset],
    failed: dict[str, str],
) -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
    """(variant, split, logits, labels) of one task, of the variants that are scored. Logits are stored, so that a
    stopped run resumes.

    Args:
        tokenizers: of all models; labels are taken from the rows that the first one encodes.
        failed: variant -> why it failed; variants that fail here are added.
    """
    task, machine = data.task.name, loader.runtime.machine
    file = loader.folder / f"{task}.npz"
    scored = [variant for variant in loader.variants if variant.scored and variant.name not in failed]
    encoded = {id(tokenizer): data.scored(splits, tokenizer, loader.runtime.longest) for tokenizer in tokenizers}
    logits: dict[str, np.ndarray] = {}
    if file.is_file():
        with np.load(file, allow_pickle=False) as stored:
            logits = dict(stored)
    for variant in scored:
        for split, rows_of_split in splits.items():
            inputs = [encoded[id(tokenizer)][split] for tokenizer in loader.tokenizers(variant)]
            if (key := f"{variant.name}|{split}") in logits:
                continue
            machine.log(f"evaluate/{task}: {variant.name}, {len(rows_of_split)} rows of {split}")
            with failing(variant, failed):
                logits[key] = _logits(loader, variant, task, inputs)
            if variant.name in failed:
                break
            atomic.write_arrays(file, logits)
    for variant in scored:
        for split, split_rows in encoded[id(tokenizers[0])].items():
            assert split_rows.labels is not None
            if variant.name not in failed:
                yield variant.name, split, logits[f"{variant.name}|{split}"], split_rows.labels


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


def _logits(loader: Loader, variant: Variant, task: str, inputs: list[Encoded]) -> np.ndarray:
    """Logits [rows, C] of a variant, in batches of the size at which it is timed at the tasks' own lengths.

    `inputs`: the task's rows, encoded for each of the variant's models. Raises ValueError for logits that are not
    finite.
    """
    by_model = []
    for runner, tokenizer, encoded in zip(loader.parts(variant, task), loader.tokenizers(variant), inputs, strict=True):
        with progress.counted(f"scoring {variant.name}", len(encoded.sequences)) as done:
            run, left = _counting(runner.run, done), tokenizer.padding_side == "left"
            outputs = predict(run, encoded, pad_id=tokenizer.pad_token_id, left=left, rows=timing.TASK_BATCH)
        by_model.append(outputs[:, loader.models.columns[task]] if loader.whole(variant) else outputs)
    logits = average(by_model, loader.weights(variant, task) if len(by_model) > 1 else None)
    if not np.isfinite(logits).all():
        raise ValueError("its logits are not finite")
    return logits


def _counting(run: runners.Run, done: Callable[[int], None]) -> runners.Run:
    """`run`, which calls `done` with the rows of each batch."""

    def counted(batch: runners.Batch) -> np.ndarray:
        outputs = run(batch)
        done(len(outputs))
        return outputs

    return counted
