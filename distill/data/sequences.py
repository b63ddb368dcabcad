"""Tokenizes a corpus into sequences of at most the maximum length, in files that all processes of a machine share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from distill.data.encode import Encoded, batches, flattened, offsets_of, special_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SHORTEST = 12
"""Corpus sequences with fewer tokens, special tokens included, are dropped (DistilBERT drops 11 and fewer)."""

MOST_UNKNOWN = 0.5
"""Corpus sequences with at least this share of unknown tokens are dropped, as in DistilBERT."""

_IDS, _OFFSETS = "ids.int32", "offsets.npy"
"""Files of a stored corpus."""


def encode_corpus(
    folder: Path,
    texts: Iterable[str],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    max_tokens: int | None = None,
) -> int:
    """Write documents into `folder` as sequences of at most `max_length` tokens, special tokens included.

    Longer documents are split into several sequences. Sequences that are too short (`SHORTEST`) or mostly unknown
    tokens (`MOST_UNKNOWN`) are dropped. Encoding stops with the sequence that reaches `max_tokens`. Only one batch of
    documents is held in memory. Returns the number of tokens written; `stored_corpus` loads them.
    """
    prefix, suffix = special_tokens(tokenizer)
    backend = tokenizer.backend_tokenizer  # the call above switched its truncation and padding off
    lengths: list[NDArray[np.int64]] = []
    total = 0
    with (folder / _IDS).open("wb") as file:
        for batch in batches(texts):
            # Takes half the time of calling the tokenizer, which also copies every mask and token type into lists.
            encodings = backend.encode_batch_fast(batch, add_special_tokens=False)
            ids, length = flattened([encoding.ids for encoding in encodings])
            ids, length = _wrap(ids, *_cut(length, max_length - len(prefix) - len(suffix)), prefix, suffix)
            rows = _usable(ids, length, tokenizer.unk_token_id)
            ids, length = ids[np.repeat(rows, length)], length[rows]
            if max_tokens is not None:
                ids, length = _until(ids, length, max_tokens - total)
            ids.tofile(file)
            lengths.append(length)
            total += len(ids)
            if max_tokens is not None and total >= max_tokens:
                break
    np.save(folder / _OFFSETS, offsets_of(lengths))
    return total


def stored_corpus(folder: Path) -> Encoded:
    """The corpus that `encode_corpus` wrote into `folder`, memory-mapped, so that processes of a machine share it."""
    return Encoded(mapped(folder / _IDS), np.load(folder / _OFFSETS, mmap_mode="r"), None, None)


def mapped(file: Path) -> NDArray[np.int32]:
    """The numbers of a file, memory-mapped. Nothing can be mapped of an empty file."""
    return np.asarray(np.memmap(file, np.int32, "r")) if file.stat().st_size else np.zeros(0, np.int32)


def mostly_unknown(ids: list[int], tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a row has too many unknown tokens to be used."""
    return tokenizer.unk_token_id is not None and ids.count(tokenizer.unk_token_id) >= MOST_UNKNOWN * len(ids)


def _cut(lengths: NDArray[np.int64], room: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Start and length, in the flat ids, of pieces of at most `room` tokens; no piece spans two documents."""
    pieces = -(-lengths // room)
    document = np.repeat(np.arange(len(lengths)), pieces)
    number = np.arange(len(document)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    starts = (np.cumsum(lengths) - lengths)[document] + number * room
    return starts, np.minimum(lengths[document] - number * room, room)


def _wrap(
    ids: NDArray[np.int32],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    prefix: list[int],
    suffix: list[int],
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Put the special tokens around each piece; the pieces cover `ids` in order. Returns ids and lengths."""
    whole = lengths + len(prefix) + len(suffix)
    begin = np.cumsum(whole) - whole
    out = np.empty(int(whole.sum()), np.int32)
    body = np.arange(len(ids)) + np.repeat(begin + len(prefix) - starts, lengths)
    out[body] = ids
    for i, token in enumerate(prefix):
        out[begin + i] = token
    for i, token in enumerate(suffix):
        out[begin + len(prefix) + lengths + i] = token
    return out, whole


def _usable(ids: NDArray[np.int32], lengths: NDArray[np.int64], unknown_id: int | None) -> NDArray[np.bool_]:
    """[rows] whether a row is long enough and has few enough unknown tokens."""
    long_enough = lengths >= SHORTEST
    if unknown_id is None:
        return long_enough
    unknown = np.concatenate([np.zeros(1, np.int64), np.cumsum(ids == unknown_id)])
    end = np.cumsum(lengths)
    return long_enough & (unknown[end] - unknown[end - lengths] < MOST_UNKNOWN * lengths)


def _until(
    ids: NDArray[np.int32], lengths: NDArray[np.int64], tokens: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The rows up to and including the first at which their total reaches `tokens`."""
    rows = int(np.searchsorted(np.cumsum(lengths), tokens)) + 1
    return ids[: int(lengths[:rows].sum())], lengths[:rows]
