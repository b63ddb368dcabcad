"""From rows of token ids to one batch: padding and dynamic masking, in numpy, once every step.

Masking draws from a counter-based generator: a number is the hash of (seed, epoch, sample,
position, stream). What a sequence gets therefore does not depend on the batch it is in, on padding,
on the process or on a resume.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distill.data.encode import Encoded

MULTIPLE = 8
"""Padded lengths are multiples of this: few distinct shapes, and matrix units like them."""

MASKED, RANDOM = 0.8, 0.1
"""Shares of the chosen tokens that become the mask token and a random one; the rest stay (BERT)."""

_AT_ONCE = 2**24
"""Tokens counted at once: bincount copies them into 64 bits, and a corpus may be larger than memory."""

_WORD = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def pad(
    encoded: Encoded, rows: Sequence[int] | NDArray[Any], pad_id: int, left: bool = False
) -> dict[str, NDArray[np.int64]]:
    """`input_ids`, `attention_mask` and `token_type_ids` of these rows: [B, L] int64.

    L is the longest row, rounded up to a multiple of 8. Padding is to the right, or to the `left`.
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
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Choose tokens to predict and hide them: (ids with the chosen ones hidden, chosen), [B, L].

    input_ids [B, L]; maskable [B, L] is false at special tokens and padding; samples [B] numbers
    each sequence within the corpus; random_ids: what a random replacement is drawn from; weights
    [V]: see `token_weights`. Of a sequence with n maskable tokens of positive weight, max(1,
    probability * n rounded half up) are chosen, without replacement and in proportion to their
    weights (Efraimidis and Spirakis 2006), none if n is 0.
    """
    weight = np.ones(input_ids.shape) if weights is None else weights[input_ids]
    candidate = maskable & (weight > 0)
    state = _sample_state(seed, epoch, np.asarray(samples))[:, None]
    position = np.arange(input_ids.shape[1], dtype=np.uint64)
    key = np.full(input_ids.shape, np.inf)
    np.divide(-np.log(_uniform(state, position, 0)), weight, out=key, where=candidate)
    available = candidate.sum(axis=1)
    wanted = np.minimum(np.maximum(np.floor(probability * available + 0.5), 1), available)
    order = np.argsort(key, axis=1, kind="stable")
    chosen = np.zeros(input_ids.shape, dtype=np.bool_)
    np.put_along_axis(chosen, order, np.arange(input_ids.shape[1]) < wanted[:, None], axis=1)

    row, column = np.nonzero(chosen)
    state, position = state[row, 0], position[column]
    action = _uniform(state, position, 1)
    pick = (_uniform(state, position, 2) * len(random_ids)).astype(np.int64)
    new = np.where(action < MASKED + RANDOM, np.asarray(random_ids)[pick], input_ids[row, column])
    new[action < MASKED] = mask_id
    masked = input_ids.copy()
    masked[row, column] = new
    return masked, chosen


def token_weights(
    encoded: Encoded, vocab_size: int, special_ids: Sequence[int], smoothing: float
) -> NDArray[np.float64] | None:
    """[V] weights max(count, 1)^-smoothing, 0 for special tokens; None when smoothing is 0.

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
    """One 64-bit state for each sample. In arrays: numpy warns when a scalar wraps around."""
    state = _mix(np.array([seed & _WORD], dtype=np.uint64))
    state = _mix(state ^ np.array([epoch & _WORD], dtype=np.uint64))
    return _mix(state ^ samples.astype(np.uint64))


def _uniform(state: NDArray[np.uint64], position: NDArray[np.uint64], stream: int) -> NDArray[np.float64]:
    """Numbers in the open interval (0, 1), of 52 bits: rounding reaches neither end."""
    bits = _mix(state ^ _mix(position * np.uint64(4) + np.uint64(stream)))
    return ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
