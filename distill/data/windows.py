"""Long texts as windows that overlap, for a teacher that reads fewer tokens than its student."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distill.data.encode import Encoded, special_tokens

OVERLAP = 4
"""Windows share one part in so many of their text: what is cut by one is whole in the next."""


@dataclass(frozen=True)
class Windows:
    """How the texts of a tokenizer are cut. Lengths in tokens."""

    size: int
    """Longest window, special tokens counted."""
    before: int
    """Special tokens in front of a text."""
    after: int
    """And behind it."""
    between: NDArray[np.int32]
    """Special tokens between the two texts of a pair; none where the tokenizer does not separate them."""


def windows(tokenizer: Any, size: int) -> Windows:
    before, after = special_tokens(tokenizer)
    pair = tokenizer("a", "a", return_special_tokens_mask=True)
    inner = slice(len(before), len(pair["input_ids"]) - len(after))
    special = np.flatnonzero(pair["special_tokens_mask"][inner])
    return Windows(size, len(before), len(after), np.asarray(pair["input_ids"][inner], np.int32)[special])


def split(encoded: Encoded, how: Windows) -> tuple[Encoded, NDArray[np.int64]]:
    """The windows of all rows, in order, and the row [W] of each; a row that fits is its own only window.

    Each window is a text of its own: it has the special tokens of the row around it and the row's label. Of a pair, the
    shorter text goes into every window, cut to half of it, and the windows are of the longer.
    """
    pieces, owner = [], []
    for row, (start, end) in enumerate(zip(encoded.offsets[:-1], encoded.offsets[1:], strict=True)):
        for index in _row(encoded.ids[start:end], how):
            pieces.append(start + index)
            owner.append(row)
    rows = np.array(owner, np.int64)
    index = np.concatenate([np.zeros(0, np.int64), *pieces])
    offsets = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
    segments = None if encoded.segments is None else encoded.segments[index]
    return Encoded(
        encoded.ids[index], offsets, segments, None if encoded.labels is None else encoded.labels[rows]
    ), rows


def _row(ids: NDArray[np.int32], how: Windows) -> Iterator[NDArray[np.int64]]:
    """Positions, in one row, of the tokens of each window."""
    every = np.arange(len(ids))
    if len(ids) <= how.size:
        yield every
        return
    before, body, after = np.split(every, [how.before, len(ids) - how.after])
    at = _find(ids[body], how.between)
    if at is None:
        for piece in _pieces(body, how.size - len(before) - len(after)):
            yield np.concatenate([before, piece, after])
        return
    first, between, second = np.split(body, [at, at + len(how.between)])
    room = how.size - len(before) - len(between) - len(after)
    if len(first) <= len(second):
        first = first[: room // 2]
        pairs = [(first, piece) for piece in _pieces(second, room - len(first))]
    else:
        second = second[: room // 2]
        pairs = [(piece, second) for piece in _pieces(first, room - len(second))]
    for one, other in pairs:
        yield np.concatenate([before, one, between, other, after])


def _pieces(text: NDArray[np.int64], room: int) -> Iterator[NDArray[np.int64]]:
    """Parts of at most `room` tokens that overlap. The last one ends where the text does, as long as the others."""
    step = max(1, room - room // OVERLAP)
    for start in [*range(0, len(text) - room, step), max(0, len(text) - room)]:
        yield text[start : start + room]


def _find(ids: NDArray[np.int32], wanted: NDArray[np.int32]) -> int | None:
    """Where `wanted` first stands in `ids`; None where it does not, or is empty."""
    if not len(wanted) or len(ids) < len(wanted):
        return None
    found = np.flatnonzero((np.lib.stride_tricks.sliding_window_view(ids, len(wanted)) == wanted).all(1))
    return int(found[0]) if len(found) else None
