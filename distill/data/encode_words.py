"""Encodes texts with the words that are classified, long texts as overlapping windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from distill.data.encode import Encoded, Words, batches
from distill.data.tokens import types_of
from distill.data.windows import OVERLAP, Windows, pieces, windows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_Window = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Positions, in its text, of the tokens of a window, and the position, in the window, of each of its words."""


def encode_words(
    texts: Sequence[str],
    places: Sequence[NDArray[np.int64]],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
) -> Encoded:
    """Encode texts as windows of at most `max_length` tokens, in order, and find the first token of each word.

    Consecutive windows of a text share a third of `max_length`, as those of questions do. A word is of the window in
    which it is farthest from an edge, which has its label and its output; in the others it is context. A word of more
    tokens than windows share may be cut: it is then of the window that has its first token and the most of the others.
    Windows without words are left out.

    Args:
        places: [words, 2] first character and end of each word of each text.
    """
    ids, types, found, owners, lengths = list[Any](), list[Any](), list[_Window](), list[int](), list[int]()
    layout: Windows | None = None
    for rows in batches(zip(texts, places, strict=True)):
        out = tokenizer(
            [text for text, _ in rows],
            return_attention_mask=False,
            return_token_type_ids=True,
            return_offsets_mapping=True,
            verbose=False,  # no warning that a text is longer than the model reads at once
        )
        own_types = types_of(tokenizer, out["input_ids"], out["token_type_ids"])
        parts = zip(out["input_ids"], own_types, out["offset_mapping"], strict=True)
        first = owners[-1] + 1 if owners else 0
        for owner, ((text, words), (own_ids, own_types, characters)) in enumerate(zip(rows, parts, strict=True), first):
            tokens = _tokens_of(np.array(characters, np.int64).reshape(-1, 2), words)
            _with_blanks(tokens, text, characters, out.word_ids(owner - first))
            if len(own_ids) <= max_length:
                own = [(np.arange(len(own_ids)), tokens[:, 0])]
            else:
                layout = layout or windows(tokenizer, max_length)
                own = _divided(len(own_ids), tokens, layout)
            both = np.array(own_ids, np.int32), np.array(own_types, np.int8)
            for index, _ in own:
                ids.append(both[0][index])
                types.append(both[1][index])
            found += own
            owners += [owner] * len(own)
            lengths.append(len(own_ids))
    positions = [part for _, part in found]
    words_before = np.cumsum([0, *map(len, positions)])
    return Encoded(
        np.concatenate([np.zeros(0, np.int32), *ids]),
        np.cumsum([0, *map(len, ids)]),
        np.concatenate([np.zeros(0, np.int8), *types]),
        None,
        words=Words(
            np.concatenate([np.zeros(0, np.int64), *positions]),
            words_before,
            np.array(owners, np.int64),
            np.array(lengths, np.int64),
        ),
    )


def _tokens_of(tokens: NDArray[np.int64], words: NDArray[np.int64]) -> NDArray[np.int64]:
    """[words, 2] index of the first token that shares a character with each word, and of the token after the last; -1
    without such a token.

    Special tokens have no characters. Those of text may begin with the space before the word.
    """
    real = np.flatnonzero(tokens[:, 0] < tokens[:, 1])
    if not len(real):
        return np.full((len(words), 2), -1)
    first = np.searchsorted(tokens[real, 1], words[:, 0], side="right")
    end = np.searchsorted(tokens[real, 0], words[:, 1], side="left")
    found = np.stack([real[np.minimum(first, len(real) - 1)], real[end - 1] + 1], axis=1)
    return np.where((first < end)[:, None], found, -1)


def _with_blanks(
    tokens: NDArray[np.int64], text: str, characters: Sequence[tuple[int, int]], numbers: Sequence[int | None]
) -> None:
    """Let words begin with the token of the space before them, where it belongs to their first token.

    SentencePiece and byte-level tokenizers make such a token where they do not know the word with the space. Given the
    words of a text, transformers counts it as the first token of the word.

    Args:
        tokens: [words, 2], as from `_tokens_of`; changed.
        numbers: of each token of the text, the number of the tokenizer's own word; None for a special token.
    """
    blank = [number is not None and not text[a:b].strip() for (a, b), number in zip(characters, numbers, strict=True)]
    if not any(blank):
        return
    for row, first in enumerate(tokens[:, 0].tolist()):
        while first > 0 and blank[first - 1] and numbers[first - 1] == numbers[first]:
            first -= 1
            tokens[row, 0] = first


def _divided(length: int, tokens: NDArray[np.int64], layout: Windows) -> list[_Window]:
    """The windows of a text of `length` tokens, which is too long for one. `tokens`: as from `_tokens_of`."""
    every = np.arange(length)
    before, body, after = np.split(every, [layout.before, length - layout.after])
    room = layout.size - len(before) - len(after)
    parts = list(pieces(body, room, min(layout.size // OVERLAP, room - 1)))
    starts = np.array([part[0] for part in parts])
    ends = starts + room
    first, end = tokens[tokens[:, 0] >= 0].T
    # Of two windows, a word is farther from an edge in the one whose middle is nearer.
    nearest = np.searchsorted(starts[1:] + ends[:-1], first + end, side="left")
    having = np.searchsorted(ends, first, side="right"), np.searchsorted(starts, first, side="right") - 1
    kept, of_kept = np.unique(np.clip(nearest, *having), return_inverse=True)
    kept = kept if len(kept) else np.zeros(1, np.int64)
    numbers = np.zeros(len(tokens), np.int64)
    numbers[tokens[:, 0] >= 0] = of_kept
    numbers = np.maximum.accumulate(numbers)  # a word without a token is with the word before it
    positions = np.where(tokens[:, 0] < 0, -1, tokens[:, 0] - starts[kept[numbers]] + len(before))
    return [
        (np.concatenate([before, parts[window], after]), positions[numbers == number])
        for number, window in enumerate(kept)
    ]
