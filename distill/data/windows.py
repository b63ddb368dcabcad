"""Splits long texts into overlapping windows: of words that are classified, for a teacher whose maximum length is below
its student's, and for vectors of whole texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distill.data.encode import Encoded, special_tokens

OVERLAP = 3
"""Consecutive windows in which an answer or the tags of words are found share 1/OVERLAP of the maximum length: 128 of
384 tokens, as in transformers' run_qa.py."""

AVERAGED_OVERLAP = 4
"""Consecutive windows whose outputs are averaged share 1/AVERAGED_OVERLAP of their text, so that a sentence cut by one
window is whole in the next."""


@dataclass(frozen=True)
class Windows:
    """Size of the windows and layout of a tokenizer's special tokens. Lengths are in tokens."""

    size: int
    """Maximum length of a window, special tokens included."""
    before: int
    """Number of special tokens before a text."""
    after: int
    """Number of special tokens after a text."""
    between: NDArray[np.int32]
    """Special tokens between the two texts of a pair; empty for single texts, in which a separator is a part of the
    text, and where the tokenizer does not separate texts."""


def windows(tokenizer: Any, size: int, *, pairs: bool = False) -> Windows:
    """Windows of at most `size` tokens for the texts of this tokenizer. `pairs`: whether they are pairs."""
    before, after = special_tokens(tokenizer)
    if not pairs:
        return Windows(size, len(before), len(after), np.zeros(0, np.int32))
    pair = tokenizer("a", "a", return_special_tokens_mask=True)
    inner = slice(len(before), len(pair["input_ids"]) - len(after))
    special = np.flatnonzero(pair["special_tokens_mask"][inner])
    return Windows(size, len(before), len(after), np.asarray(pair["input_ids"][inner], np.int32)[special])


def split(encoded: Encoded, layout: Windows) -> tuple[Encoded, NDArray[np.int64]]:
    """The windows of all rows, in order, and the row number [W] of each. A row that is short enough is one window.

    Each window has the special tokens and the label of its row. Of a pair, the longer text is split; every window
    contains the shorter text, truncated to half of the window.
    """
    pieces, owner = [], []
    for row, (start, end) in enumerate(zip(encoded.offsets[:-1], encoded.offsets[1:], strict=True)):
        for index in _row(encoded.ids[start:end], layout):
            pieces.append(start + index)
            owner.append(row)
    rows = np.array(owner, np.int64)
    index = np.concatenate([np.zeros(0, np.int64), *pieces])
    offsets = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
    segments = None if encoded.segments is None else encoded.segments[index]
    return Encoded(
        encoded.ids[index], offsets, segments, None if encoded.labels is None else encoded.labels[rows]
    ), rows


def new_tokens(lengths: NDArray[np.int64], owner: NDArray[np.int64], layout: Windows) -> NDArray[np.int64]:
    """[W] number of tokens, without special ones, that each window of `split` has and none before it of its text; 1 for
    a text without tokens.

    Args:
        lengths: [n] of single texts, special tokens included.
        owner: [W] as from `split`.
    """
    room, special = layout.size - layout.before - layout.after, layout.before + layout.after
    number = np.arange(len(owner)) - np.searchsorted(owner, owner)  # of each window in its text
    end = room + number * _step(room, room // AVERAGED_OVERLAP)
    before = np.where(number > 0, end - _step(room, room // AVERAGED_OVERLAP), 0)
    return np.maximum(np.minimum(end, lengths[owner] - special) - before, 1)


def _row(ids: NDArray[np.int32], layout: Windows) -> Iterator[NDArray[np.int64]]:
    """Positions, in one row, of the tokens of each window."""
    every = np.arange(len(ids))
    if len(ids) <= layout.size:
        yield every
        return
    before, body, after = np.split(every, [layout.before, len(ids) - layout.after])
    at = _find(ids[body], layout.between)
    if at is None:
        for piece in _averaged(body, layout.size - len(before) - len(after)):
            yield np.concatenate([before, piece, after])
        return
    first, between, second = np.split(body, [at, at + len(layout.between)])
    room = layout.size - len(before) - len(between) - len(after)
    if len(first) <= len(second):
        first = first[: room // 2]
        pairs = [(first, piece) for piece in _averaged(second, room - len(first))]
    else:
        second = second[: room // 2]
        pairs = [(piece, second) for piece in _averaged(first, room - len(second))]
    for first, second in pairs:
        yield np.concatenate([before, first, between, second, after])


def _averaged(text: NDArray[np.int64], room: int) -> Iterator[NDArray[np.int64]]:
    """The parts of a text whose outputs are averaged."""
    return pieces(text, room, room // AVERAGED_OVERLAP)


def pieces(text: NDArray[np.int64], room: int, overlap: int) -> Iterator[NDArray[np.int64]]:
    """Parts of `room` tokens (fewer if the text is shorter), of which consecutive ones share at least `overlap`. The
    last part ends with the text."""
    for start in [*range(0, len(text) - room, _step(room, overlap)), max(0, len(text) - room)]:
        yield text[start : start + room]


def _step(room: int, overlap: int) -> int:
    return max(1, room - overlap)


def _find(ids: NDArray[np.int32], pattern: NDArray[np.int32]) -> int | None:
    """Index of the first occurrence of `pattern` in `ids`; None if it does not occur or is empty."""
    if not len(pattern) or len(ids) < len(pattern):
        return None
    matches = np.flatnonzero((np.lib.stride_tricks.sliding_window_view(ids, len(pattern)) == pattern).all(1))
    return int(matches[0]) if len(matches) else None
