"""Collates rows of token ids into a batch: padding and dynamic masking, in numpy.

Masking uses a counter-based random generator: each number is a hash of (seed, epoch, sample, position, stream). The
masks of a sequence therefore do not depend on its batch, on padding, on the process or on resuming.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from distill.data.encode import Encoded

if TYPE_CHECKING:
    from distill.data.whole_words import WordMasking

MULTIPLE = 8
"""Padded lengths are multiples of this: there are few distinct shapes, and matrix units run them at full speed."""

MASKED, RANDOM = 0.8, 0.1
"""Shares of the chosen tokens that are replaced by the mask token and by a random token; the others are kept (BERT)."""

_AT_ONCE = 2**24
"""Tokens counted in one call: bincount copies them to int64, and a memory-mapped corpus may not fit into memory."""

_WORD = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def pad(
    encoded: Encoded, rows: Sequence[int] | NDArray[Any], pad_id: int, left: bool = False
) -> dict[str, NDArray[np.int64]]:
    """`input_ids`, `attention_mask` and `token_type_ids` of these sequences, which are rows unless rows have several:
    [B, L] int64.

    L is the longest row, rounded up to a multiple of 8. Padding is on the right, or on the left with `left`.
    """
    index = np.asarray(rows, dtype=np.int64)
    start = encoded.offsets[index]
    lengths = encoded.offsets[index + 1] - start
    width = -(-int(lengths.max()) // MULTIPLE) * MULTIPLE
    column = np.arange(width)
    first = (width - lengths if left else np.zeros_like(lengths))[:, None]
    real = (column >= first) & (column < first + lengths[:, None])
    source = (start[:, None] + column - first)[real]
    ids = np.full(real.shape, pad_id, dtype=np.int64)
    ids[real] = encoded.ids[source]
    types = np.zeros(real.shape, dtype=np.int64)
    if encoded.segments is not None:
        types[real] = encoded.segments[source]
    return {"input_ids": ids, "attention_mask": real.astype(np.int64), "token_type_ids": types}


def word_positions(
    encoded: Encoded, rows: Sequence[int] | NDArray[Any], width: int, left: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The words of these rows that have a token: flat positions of their first tokens in a batch [B, `width`] of `pad`,
    and their numbers among all words."""
    assert encoded.words is not None
    index = np.asarray(rows, dtype=np.int64)
    starts, ends = encoded.words.offsets[index], encoded.words.offsets[index + 1]
    numbers = np.concatenate([np.zeros(0, np.int64), *map(np.arange, starts, ends)])
    shift = np.arange(len(index)) * width
    if left:
        shift += width - (encoded.offsets[index + 1] - encoded.offsets[index])
    inside = encoded.words.positions[numbers]
    positions = inside + np.repeat(shift, ends - starts)
    return positions[inside >= 0], numbers[inside >= 0]


def characters(encoded: Encoded, rows: Sequence[int] | NDArray[Any], width: int) -> NDArray[np.int64]:
    """First character and end, in its context, of each token of a batch [B, `width`, 2] of windows, padded on the
    right; -1 for tokens that are not of a context."""
    assert encoded.spans is not None
    places = np.full((len(rows), width, 2), -1, np.int64)
    for place, row in zip(places, rows, strict=True):
        start, end = encoded.offsets[row], encoded.offsets[row + 1]
        place[: end - start] = encoded.spans.characters[start:end]
    return places


def task_batch(
    encoded: Encoded, rows: Sequence[int] | NDArray[Any], pad_id: int, left: bool = False
) -> tuple[dict[str, NDArray[np.int64]], NDArray[np.int64]]:
    """A batch as from `pad`, and the numbers of the task's rows in it.

    It has the flat positions `words` if the rows of the task are words. If they have several sequences, it has `groups`
    [rows, most]: the sequences of each row, -1 where a row has fewer. If they are windows, it has `places` [B, L]: 1
    where an answer may start and end, which are tokens of the context, and the first token, for no answer.
    """
    if encoded.groups is not None:
        index = np.asarray(rows, dtype=np.int64)
        starts, ends = encoded.groups[index], encoded.groups[index + 1]
        batch = pad(encoded, np.concatenate([*map(np.arange, starts, ends)]), pad_id, left)
        place, first = np.arange(encoded.most), np.cumsum(ends - starts) - (ends - starts)
        batch["groups"] = np.where(place < (ends - starts)[:, None], first[:, None] + place, -1)
        return batch, index
    batch = pad(encoded, rows, pad_id, left)
    if encoded.spans is not None:
        batch["places"] = (characters(encoded, rows, batch["input_ids"].shape[1])[:, :, 0] >= 0).astype(np.int64)
        batch["places"][:, 0] = 1
    if encoded.words is None:
        return batch, np.asarray(rows, dtype=np.int64)
    batch["words"], numbers = word_positions(encoded, rows, batch["input_ids"].shape[1], left)
    return batch, numbers


def pairs(groups: NDArray[Any]) -> NDArray[np.int64]:
    """[P, 2] all pairs of rows of a batch that have the same of `groups` [B], each once; P may be 0."""
    first, second = np.triu_indices(len(groups), 1)
    same = groups[first] == groups[second]
    return np.stack([first[same], second[same]], axis=1)


def mask_tokens(
    input_ids: NDArray[np.int64],
    maskable: NDArray[np.bool_],
    samples: NDArray[Any],
    *,
    seed: int,
    epoch: int,
    probability: float,
    mask_id: int,
    random_ids: NDArray[Any],
    weights: NDArray[np.float64] | None,
    words: WordMasking | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Mask tokens for masked-language modelling; returns (masked ids [B, L], mask of the chosen positions [B, L]).

    In a sequence with n maskable tokens of positive weight, max(1, probability * n rounded half up) are chosen, none if
    n is 0: without replacement and in proportion to their weights (Efraimidis and Spirakis 2006). With `words`, it is
    the maximum, and whole words are chosen (`WordMasking.drawn`).

    Args:
        input_ids: [B, L].
        maskable: [B, L], false at special tokens and padding.
        samples: [B], number of each sequence within the corpus.
        random_ids: token ids from which random replacements are drawn.
        weights: [V], see `token_weights`; None for equal weights.
        words: how whole words are chosen; None for single tokens.
    """
    weight = np.ones(input_ids.shape) if weights is None else weights[input_ids]
    candidate = maskable & (weight > 0)
    state = _sample_state(seed, epoch, np.asarray(samples))[:, None]
    position = np.arange(input_ids.shape[1], dtype=np.uint64)
    key = np.full(input_ids.shape, np.inf)
    np.divide(-np.log(_uniform(state, position, 0)), weight, out=key, where=candidate)
    available = candidate.sum(axis=1)
    count = np.minimum(np.maximum(np.floor(probability * available + 0.5), 1), available)
    chosen = np.zeros(input_ids.shape, dtype=np.bool_)
    if words is None:
        order = np.argsort(key, axis=1, kind="stable")
        np.put_along_axis(chosen, order, np.arange(input_ids.shape[1]) < count[:, None], axis=1)
    else:
        flat, first = words.drawn(input_ids, candidate, count, key, _uniform(state, position, 3))
        chosen.flat[flat] = True

    row, column = np.nonzero(chosen)
    deciding = position[column if words is None else first % input_ids.shape[1]]
    state, position = state[row, 0], position[column]
    action = _uniform(state, deciding, 1)
    drawn = (_uniform(state, position, 2) * len(random_ids)).astype(np.int64)
    replacement = np.where(action < MASKED + RANDOM, np.asarray(random_ids)[drawn], input_ids[row, column])
    replacement[action < MASKED] = mask_id
    masked = input_ids.copy()
    masked[row, column] = replacement
    return masked, chosen


def draws(chosen: NDArray[np.bool_], samples: NDArray[Any], *, seed: int, epoch: int) -> NDArray[np.float32]:
    """Uniform random numbers in [0, 1], float32 [M], one for each of the M chosen positions of a batch, row by row: by
    each of them a token is drawn.

    Args:
        chosen: [B, L].
        samples: [B], number of each sequence within the corpus.
    """
    row, column = np.nonzero(chosen)
    # The four streams of `_uniform` decide the masks; a fifth would be the first one of the next position.
    state = _mix(_sample_state(seed, epoch, np.asarray(samples))[row])
    return _uniform(state, column.astype(np.uint64), 0).astype(np.float32)


def token_weights(
    encoded: Encoded, vocab_size: int, special_ids: Sequence[int], smoothing: float
) -> NDArray[np.float64] | None:
    """Sampling weights [V] for masking, max(count, 1)^-smoothing, 0 for special tokens; None when smoothing is 0.

    Source: `token_probs` in DistilBERT's `distillation/train.py`, where smoothing is 0.7.
    """
    if smoothing == 0:
        return None
    count = np.zeros(vocab_size, np.int64)
    for start in range(0, len(encoded.ids), _AT_ONCE):
        count += np.bincount(encoded.ids[start : start + _AT_ONCE], minlength=vocab_size)
    weights = np.maximum(count, 1).astype(np.float64) ** -smoothing
    weights[np.asarray(special_ids, dtype=np.int64)] = 0
    return weights


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of SplitMix64 (Steele, Lea and Flood 2014)."""
    value = value + np.uint64(_GOLDEN)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _sample_state(seed: int, epoch: int, samples: NDArray[Any]) -> NDArray[np.uint64]:
    """A 64-bit state for each sample. Uses arrays throughout because numpy warns when a scalar overflows."""
    state = _mix(np.array([seed & _WORD], dtype=np.uint64))
    state = _mix(state ^ np.array([epoch & _WORD], dtype=np.uint64))
    return _mix(state ^ samples.astype(np.uint64))


def _uniform(state: NDArray[np.uint64], position: NDArray[np.uint64], stream: int) -> NDArray[np.float64]:
    """Numbers in the open interval (0, 1), with 52 random bits so that rounding reaches neither end.

    stream: 0 to 3; others are those of other positions.
    """
    bits = _mix(state ^ _mix(position * np.uint64(4) + np.uint64(stream)))
    return ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
