"""Outputs of two models for the rows of a file, and the lengths of the rows. torch is imported by the models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from distill.cli.compare.rows import Rows, Texts
from distill.data.task_types import ABSENT, Kind
from distill.data.vectors import prompts_of
from distill.models.families.head import stored_head

if TYPE_CHECKING:
    from distill.deploy.serve import Model

_AT_ONCE = 4096
"""Rows whose texts are in memory at once."""


def outputs(model: Model, kind: Kind, rows: Rows, batch_size: int) -> np.ndarray:
    """Outputs of all rows as from `Model.outputs`, of which those of a regression are the numbers that the model
    predicts; of embedders, [n, 2 D] the vectors of both texts, which for retrieval follow the prompts in the model's
    folder."""
    parts, prompts = [], prompts_of(kind, stored_head(model.folder)) or ("", "")
    for numbers in _parts(rows):
        texts = rows.texts(numbers)
        if not kind.separate:
            parts.append(model.outputs(texts, batch_size))
            continue
        columns = [
            [prompt + text for text in column] for prompt, column in zip(prompts, zip(*texts, strict=True), strict=True)
        ]
        parts.append(np.concatenate([model.outputs(column, batch_size) for column in columns], axis=1))
    if kind.name == "regression" and model.activation is not None:  # of a cross-encoder
        parts = [model.activation(part) for part in parts]
    most = max(part.shape[1] for part in parts)  # parts differ in the number of choices
    return np.concatenate([np.pad(part, ((0, 0), (0, most - part.shape[1])), constant_values=ABSENT) for part in parts])


def lengths(model: Model, rows: Rows) -> np.ndarray:
    """[n] number of tokens of each row for the tokenizer of a model, not truncated: of a row with several sequences,
    the most tokens of one of them."""
    backend = model.tokenizer.backend_tokenizer
    counts: list[int] = []
    for numbers in _parts(rows):
        every = [_sequences(model.kind, row) for row in rows.texts(numbers)]
        sizes = [len(encoding.ids) for encoding in backend.encode_batch_fast([text for row in every for text in row])]
        starts = np.cumsum([0, *map(len, every)])[:-1]
        counts += np.maximum.reduceat(sizes, starts).tolist()
    return np.array(counts, np.int64)


def _sequences(kind: Kind, row: Any) -> list[Any]:
    """The texts and pairs of texts that a model encodes for a row."""
    if kind.choices:
        assert kind.divide is not None
        first, seconds = kind.divide(row)
        return [(first, second) for second in seconds]
    if kind.separate:
        return list(row)
    return [" ".join(row) if isinstance(row, list) else row]


def _parts(rows: Rows) -> list[np.ndarray]:
    return [np.arange(start, min(start + _AT_ONCE, len(rows))) for start in range(0, len(rows), _AT_ONCE)]


def served(kind: Kind, texts: Texts) -> Any:
    """What `Model.outputs` takes in one call: of the pairs of an embedder, the first texts."""
    return [first for first, _ in texts] if kind.separate else texts
