"""From text to token ids, once: flat arrays that a batch is cut from by row number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

SHORTEST = 12
"""A corpus sequence of fewer tokens, special ones counted, is dropped (DistilBERT drops 11 and fewer)."""

MOST_UNKNOWN = 0.5
"""A corpus sequence of which at least this share is unknown tokens is dropped (DistilBERT)."""

_AT_ONCE = 1024
"""Texts handed to the tokenizer in one call."""

_IDS, _OFFSETS = "ids.int32", "offsets.npy"
"""Files of a stored corpus."""


@dataclass(frozen=True)
class Encoded:
    """Rows of token ids, one after the other. Row r is `ids[offsets[r]:offsets[r + 1]]`."""

    ids: NDArray[np.int32]
    """Token ids of all rows, flat, special tokens included."""
    offsets: NDArray[np.int64]
    """[n + 1] where each row starts."""
    segments: NDArray[np.int8] | None
    """Token type of each id, flat; None where all are 0 (a corpus)."""
    labels: NDArray[Any] | None
    """[n] int64 classes, or float32 values of a regression; None for a corpus."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[n] tokens in each row."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1


def encode_corpus(
    folder: Path,
    texts: Iterable[str],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    max_tokens: int | None = None,
) -> int:
    """Documents, in order, as sequences of at most `max_length` tokens, each with its own special tokens.

    A longer document is cut into several. Very short and mostly unknown sequences are dropped.
    Encoding stops once there are `max_tokens` tokens; the rest of the batch of documents in hand is
    dropped. Returns the number of tokens written into `folder`, for `stored_corpus`; no more than a
    batch of documents is held in memory.
    """
    prefix, suffix = special_tokens(tokenizer)
    backend = tokenizer.backend_tokenizer  # without truncation and padding: the call above left none
    lengths: list[NDArray[np.int64]] = []
    total = 0
    with (folder / _IDS).open("wb") as file:
        for batch in batches(texts):
            # Half the time of calling the tokenizer itself, which copies every mask and type into lists as well.
            encodings = backend.encode_batch_fast(batch, add_special_tokens=False)
            ids, length = _flatten([encoding.ids for encoding in encodings])
            ids, length = _wrap(ids, *_cut(length, max_length - len(prefix) - len(suffix)), prefix, suffix)
            ids, length = _keep(ids, length, _good(ids, length, tokenizer.unk_token_id))
            if max_tokens is not None:
                ids, length = _first(ids, length, max_tokens - total)
            ids.tofile(file)
            lengths.append(length)
            total += len(ids)
            if max_tokens is not None and total >= max_tokens:
                break
    np.save(folder / _OFFSETS, _offsets(lengths))
    return total


def stored_corpus(folder: Path) -> Encoded:
    """What `encode_corpus` wrote, mapped into memory: processes of one machine share it."""
    file = folder / _IDS
    ids = np.asarray(np.memmap(file, np.int32, "r")) if file.stat().st_size else np.zeros(0, np.int32)
    return Encoded(ids, np.load(folder / _OFFSETS, mmap_mode="r"), None, None)


def encode_task(
    dataset: Dataset, columns: Sequence[str], tokenizer: PreTrainedTokenizerBase, max_length: int
) -> Encoded:
    """Examples of one text column or of a pair of them, cut (the longer text first) to `max_length` tokens.

    Where the tokenizer does not separate the texts of a pair, a line break does. Labels come
    from the column `label`, where there is one.
    """
    texts = [list(dataset[column]) for column in columns]
    if len(texts) == 2 and not _separates(tokenizer):
        texts[1] = [f"\n{text}" for text in texts[1]]
    ids, lengths, types = [], [], []
    try:
        for start in range(0, len(dataset), _AT_ONCE):
            out = tokenizer(
                *(text[start : start + _AT_ONCE] for text in texts),
                truncation=True,
                max_length=max_length,
                return_attention_mask=False,
                return_token_type_ids=True,
            )
            flat, length = _flatten(out["input_ids"])
            ids.append(flat)
            lengths.append(length)
            types.append(_flatten(out["token_type_ids"])[0].astype(np.int8))
    finally:
        # A tokenizer remembers its last truncation, and would save it with the model.
        tokenizer.backend_tokenizer.no_truncation()
    labels = None
    if "label" in dataset.column_names:
        values = np.asarray(dataset["label"])
        labels = values.astype(np.float32 if values.dtype.kind == "f" else np.int64)
    segments = np.concatenate(types) if types else np.zeros(0, np.int8)
    return _encoded(ids, lengths, segments, labels)


def _separates(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the tokenizer puts a token of its own between the texts of a pair: decoders' do not."""
    marks = tokenizer("a", "a", return_special_tokens_mask=True)["special_tokens_mask"]
    real = [index for index, mark in enumerate(marks) if not mark]
    return not real or any(marks[real[0] : real[-1] + 1])


def _encoded(
    ids: list[NDArray[np.int32]],
    lengths: list[NDArray[np.int64]],
    segments: NDArray[np.int8],
    labels: NDArray[Any] | None,
) -> Encoded:
    return Encoded(np.concatenate([np.zeros(0, np.int32), *ids]), _offsets(lengths), segments, labels)


def _offsets(lengths: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths]))


def batches(texts: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(texts)
    while batch := list(islice(rest, _AT_ONCE)):
        yield batch


def _flatten(rows: list[list[int]]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Flat values and the length of each row."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum())), lengths


def special_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """What the tokenizer puts before and after one text: asked of it, as the rule differs between families."""
    probe = tokenizer("a", return_special_tokens_mask=True)
    real = np.flatnonzero(np.asarray(probe["special_tokens_mask"]) == 0)
    # A tokenizer that knows no `a` gives the unknown token, which is itself special.
    before, after = (int(real[0]), int(real[-1]) + 1) if len(real) else (1, len(probe["input_ids"]) - 1)
    return probe["input_ids"][:before], probe["input_ids"][after:]


def _cut(lengths: NDArray[np.int64], room: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Start and length, in the flat ids, of pieces of at most `room` tokens that never cross a document."""
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
    """Put the special tokens around each piece. The pieces cover `ids` in order."""
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


def _good(ids: NDArray[np.int32], lengths: NDArray[np.int64], unknown_id: int | None) -> NDArray[np.bool_]:
    good = lengths >= SHORTEST
    if unknown_id is None:
        return good
    seen = np.concatenate([np.zeros(1, np.int64), np.cumsum(ids == unknown_id)])
    end = np.cumsum(lengths)
    return good & (seen[end] - seen[end - lengths] < MOST_UNKNOWN * lengths)


def _keep(
    ids: NDArray[np.int32], lengths: NDArray[np.int64], rows: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    return ids[np.repeat(rows, lengths)], lengths[rows]


def _first(
    ids: NDArray[np.int32], lengths: NDArray[np.int64], tokens: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The rows up to and with the one that reaches `tokens`."""
    rows = int(np.searchsorted(np.cumsum(lengths), tokens)) + 1
    return ids[: int(lengths[:rows].sum())], lengths[:rows]
