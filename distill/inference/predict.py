"""Logits of a whole data set, in batches of sequences of similar length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distill.data.collate import characters, pad, task_batch, word_positions
from distill.data.encode import Encoded
from distill.data.task_types import ABSENT
from distill.data.task_types.answers import COLUMNS, best_spans, gathered
from distill.data.windows import Windows, new_tokens, split, windows
from distill.inference.mixture import average_by_text, mean_vector
from distill.inference.runners import Batch, Run

SCORED = 4096
"""Most tokens of a batch in which rows are scored: on a CPU larger batches are no faster."""


def batches(lengths: np.ndarray, tokens: int, rows: int | None = None) -> list[np.ndarray]:
    """Row indexes of each batch of rows with `lengths` [n]. The longest rows come first, so that memory runs out at the
    start if at all.

    Rows times longest length is at most `tokens`, except for a single row that is longer. With `rows`, each batch has
    that number of rows instead.
    """
    order = np.argsort(-lengths, kind="stable")
    parts, start = [], 0
    while start < len(order):
        size = rows or max(1, tokens // max(1, int(lengths[order[start]])))
        parts.append(order[start : start + size])
        start += size
    return parts


def predict(
    run: Run, encoded: Encoded, *, pad_id: int, left: bool = False, tokens: int = 16384, rows: int | None = None
) -> np.ndarray:
    """Logits float32 [n, C] of every row, in their order. `tokens` and `rows` limit a batch, as in `batches`.

    For rows in words [W, C], with zeros for words without a token. For rows with up to K sequences [n, K C], with
    `ABSENT` where a row has fewer. For windows [n, `COLUMNS`] of n questions.

    Raises:
        ValueError: without rows.
    """
    parts = batches(np.asarray(encoded.lengths), tokens, rows)
    if not parts:
        raise ValueError("encoded: got no rows; must have at least one")
    if encoded.words is not None:
        return _of_words(run, encoded, parts, pad_id, left)
    if encoded.spans is not None:
        return _of_windows(run, encoded, parts, pad_id)
    if encoded.groups is not None:
        outputs = predict(run, encoded.sequences, pad_id=pad_id, left=left, tokens=tokens, rows=rows)
        return grouped(outputs, encoded.groups)
    first = run(pad(encoded, parts[0], pad_id, left))
    result = np.empty((len(encoded), first.shape[1]), dtype=np.float32)
    result[parts[0]] = first
    for part in parts[1:]:
        # Small arrays that are kept between large ones that are freed would fragment the memory.
        result[part] = run(pad(encoded, part, pad_id, left))
    return result


def grouped(outputs: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Outputs [sequences, C] as [n, K C], for rows of up to K sequences. `groups`: as in `Encoded`."""
    sizes = np.diff(groups)
    place = np.arange(int(sizes.max(initial=0)))
    has, numbers = place < sizes[:, None], groups[:-1, None] + place
    result = np.full((*numbers.shape, outputs.shape[1]), ABSENT, np.float32)
    result[has] = outputs[numbers[has]]
    return result.reshape(len(sizes), -1)


def stacked(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Outputs [n, C] of the rows of all parts; `ABSENT` where the rows of a part have fewer choices."""
    most = max(part.shape[1] for part in parts)
    return np.concatenate([np.pad(part, ((0, 0), (0, most - part.shape[1])), constant_values=ABSENT) for part in parts])


def _of_words(run: Run, encoded: Encoded, parts: list[np.ndarray], pad_id: int, left: bool) -> np.ndarray:
    assert encoded.words is not None
    outputs, numbers = [], []
    for part in parts:
        batch = pad(encoded, part, pad_id, left)
        width = batch["input_ids"].shape[1]
        positions, words = word_positions(encoded, part, width, left)
        # By row and column, because the logits may lack columns of padding.
        outputs.append(run(batch)[positions // width, positions % width])
        numbers.append(words)
    result = np.zeros((len(encoded.words.positions), outputs[0].shape[1]), dtype=np.float32)
    result[np.concatenate(numbers)] = np.concatenate(outputs)
    return result


def _of_windows(run: Run, encoded: Encoded, parts: list[np.ndarray], pad_id: int) -> np.ndarray:
    assert encoded.spans is not None
    result = np.empty((len(encoded), COLUMNS), np.float32)
    for part in parts:
        logits = run(pad(encoded, part, pad_id))  # may lack columns of padding
        result[part] = best_spans(logits, characters(encoded, part, logits.shape[1]))
    return gathered(result, encoded.spans.owners)


def window_logits(run: Run, encoded: Encoded, *, pad_id: int, tokens: int = 16384) -> np.ndarray:
    """Logits float32 [windows, 2 W] of start, then of end, of each window, with `ABSENT` where there is no answer.

    W is the number of tokens of the longest window, padded. `tokens`: as in `predict`.
    """
    parts = batches(np.asarray(encoded.lengths), tokens)
    result = np.empty((0, 2, 0), np.float32)
    for part in parts:  # the longest first
        batch, _ = task_batch(encoded, part, pad_id)
        places = batch.pop("places")
        if not result.size:
            result = np.full((len(encoded), 2, places.shape[1]), ABSENT, np.float32)
        logits = run(batch)  # may lack columns of padding
        inside = places[:, : logits.shape[1], None] == 1
        result[part, :, : logits.shape[1]] = np.where(inside, logits, np.float32(ABSENT)).transpose(0, 2, 1)
    return result.reshape(len(encoded), -1)


def whole_vectors(run: Run, encoded: Encoded, layout: Windows, *, pad_id: int, left: bool, rows: int) -> np.ndarray:
    """Vectors float32 [n, D] of texts of any length, of one sequence each: the mean over overlapping windows, weighted
    by the tokens that are new in each. `rows`: windows in a batch."""
    parts, owner = split(encoded, layout)
    vectors = predict(run, parts, pad_id=pad_id, left=left, rows=rows)
    return mean_vector(vectors, owner, new_tokens(encoded.lengths, owner, layout))


def in_windows(run: Run, tokenizer: Any, size: int | None, *, pairs: bool) -> Run:
    """A callable for texts of any length, or for pairs of them. It applies `run` to overlapping windows of at most
    `size` tokens and averages the outputs of each text. With `size` None it is `run` itself."""
    if size is None:
        return run
    layout, pad_left = windows(tokenizer, size, pairs=pairs), tokenizer.padding_side == "left"

    def whole(batch: Batch) -> np.ndarray:
        real = batch["attention_mask"].astype(bool)
        offsets = np.cumsum([0, *real.sum(1)])
        rows = Encoded(batch["input_ids"][real].astype(np.int32), offsets, batch["token_type_ids"][real], None)
        parts, owner = split(rows, layout)
        return average_by_text(run(pad(parts, range(len(parts)), tokenizer.pad_token_id, pad_left)), owner)

    return whole
