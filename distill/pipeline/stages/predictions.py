"""The logits of an evaluate step's variants for the rows of the tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from distill.runtime import progress
from distill.runtime.storage import atomic

if TYPE_CHECKING:
    from datasets import Dataset

Splits = Mapping[str, Encoded]
"""Split -> its encoded rows."""


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
    task = data.task.name
    file = loader.folder / f"{task}.npz"
    scored = [variant for variant in loader.variants if variant.scored and variant.name not in failed]
    encoded = {id(each): loader.read_by(data, each).scored(splits, each, loader.runtime.longest) for each in tokenizers}
    logits: dict[str, np.ndarray] = {}
    if file.is_file():
        with np.load(file, allow_pickle=False) as stored:
            logits = dict(stored)
    for variant in scored:
        missing = [split for split in splits if f"{variant.name}|{split}" not in logits]
        with failing(variant, failed):
            for split, outputs in _logits(loader, variant, data, {split: splits[split] for split in missing}, encoded):
                logits[f"{variant.name}|{split}"] = outputs
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


def _logits(
    loader: Loader, variant: Variant, data: TaskData, splits: Mapping[str, Dataset], encoded: Mapping[int, Splits]
) -> Iterator[tuple[str, np.ndarray]]:
    """(split, logits [rows, C]) of a variant, which is loaded once, and not for rows that it was scored on before.

    Args:
        encoded: identity of each tokenizer -> split -> its rows.

    Raises:
        ValueError: for logits that are not finite.
    """
    task, machine = data.task.name, loader.runtime.machine
    known = loader.development(variant, task) if splits else {}
    models: list[runners.Runner] = []
    for split, rows in splits.items():
        # The rows of a split are all of them or, of more than are needed here, some.
        if split in known and len(data.development[split]) == len(rows):
            outputs = known[split]
        else:
            machine.log(f"evaluate/{task}: {variant.name}, {len(rows)} rows of {split}")
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
