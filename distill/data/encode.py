"""Tokenizes texts once, into flat arrays of token ids from which batches are taken by row number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

T = TypeVar("T")

SHORTEST = 12
"""Corpus sequences with fewer tokens, special tokens included, are dropped (DistilBERT drops 11 and fewer)."""

MOST_UNKNOWN = 0.5
"""Corpus sequences with at least this share of unknown tokens are dropped, as in DistilBERT."""

_AT_ONCE = 1024
"""Texts per call of the tokenizer."""

_IDS, _OFFSETS = "ids.int32", "offsets.npy"
"""Files of a stored corpus."""


@dataclass(frozen=True)
class Encoded:
    """Rows of token ids in one flat array. Row r is `ids[offsets[r]:offsets[r + 1]]`."""

    ids: NDArray[np.int32]
    """Token ids of all rows, flat, special tokens included."""
    offsets: NDArray[np.int64]
    """[n + 1] start of each row, and the end of the last."""
    segments: NDArray[np.int8] | None
    """Token type of each id, flat; None where all are 0 (a corpus)."""
    labels: NDArray[Any] | None
    """[n] class numbers (int64), or the targets of a regression (float32); None for a corpus."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[n] number of tokens in each row."""
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
            ids, length = _flatten([encoding.ids for encoding in encodings])
            ids, length = _wrap(ids, *_cut(length, max_length - len(prefix) - len(suffix)), prefix, suffix)
            ids, length = _select(ids, length, _usable(ids, length, tokenizer.unk_token_id))
            if max_tokens is not None:
                ids, length = _until(ids, length, max_tokens - total)
            ids.tofile(file)
            lengths.append(length)
            total += len(ids)
            if max_tokens is not None and total >= max_tokens:
                break
    np.save(folder / _OFFSETS, _offsets(lengths))
    return total


def stored_corpus(folder: Path) -> Encoded:
    """The corpus that `encode_corpus` wrote into `folder`, memory-mapped, so that processes of a machine share it."""
    file = folder / _IDS
    ids = np.asarray(np.memmap(file, np.int32, "r")) if file.stat().st_size else np.zeros(0, np.int32)
    return Encoded(ids, np.load(folder / _OFFSETS, mmap_mode="r"), None, None)


def encode_task(
    dataset: Dataset, columns: Sequence[str], tokenizer: PreTrainedTokenizerBase, max_length: int
) -> Encoded:
    """Encode a task's rows, as `encode_texts` does. Labels are taken from the column `label` if it exists."""
    encoded = encode_texts([list(dataset[column]) for column in columns], tokenizer, max_length)
    if "label" not in dataset.column_names:
        return encoded
    values = np.asarray(dataset["label"])
    return replace(encoded, labels=values.astype(np.float32 if values.dtype.kind == "f" else np.int64))


def encode_texts(texts: Sequence[Sequence[str]], tokenizer: PreTrainedTokenizerBase, max_length: int) -> Encoded:
    """Encode one list of texts, or two of the same length for pairs. The result has no labels.

    Rows are truncated to `max_length` tokens, of a pair the longer text first. Where the tokenizer puts no separator
    between the texts of a pair, a line break is inserted.
    """
    if len(texts) == 2 and not _separates(tokenizer):
        texts = [texts[0], [f"\n{text}" for text in texts[1]]]
    ids, lengths, types = [], [], []
    try:
        for start in range(0, len(texts[0]), _AT_ONCE):
            out = tokenizer(
                *(column[start : start + _AT_ONCE] for column in texts),
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
        # A fast tokenizer keeps its last truncation setting, which would be saved with the model.
        tokenizer.backend_tokenizer.no_truncation()
    segments = np.concatenate(types) if types else np.zeros(0, np.int8)
    return Encoded(np.concatenate([np.zeros(0, np.int32), *ids]), _offsets(lengths), segments, None)


def _separates(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the tokenizer puts a special token between the texts of a pair; those of decoders do not."""
    special = tokenizer("a", "a", return_special_tokens_mask=True)["special_tokens_mask"]
    text = [index for index, flag in enumerate(special) if not flag]
    return not text or any(special[text[0] : text[-1] + 1])


def _offsets(lengths: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths]))


def batches(texts: Iterable[T]) -> Iterator[list[T]]:
    """The texts, or other rows, in lists of at most 1024, in order."""
    rest = iter(texts)
    while batch := list(islice(rest, _AT_ONCE)):
        yield batch


def _flatten(rows: list[list[int]]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The values of all rows in one flat array, and the length of each row."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum())), lengths


def special_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Special tokens (before, after) that the tokenizer puts around a single text, found by encoding one."""
    probe = tokenizer("a", return_special_tokens_mask=True)
    text = np.flatnonzero(np.asarray(probe["special_tokens_mask"]) == 0)
    # Without `a` in its vocabulary the tokenizer outputs the unknown token, which is itself special.
    before, after = (int(text[0]), int(text[-1]) + 1) if len(text) else (1, len(probe["input_ids"]) - 1)
    return probe["input_ids"][:before], probe["input_ids"][after:]


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


def _select(
    ids: NDArray[np.int32], lengths: NDArray[np.int64], rows: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    return ids[np.repeat(rows, lengths)], lengths[rows]


def _until(
    ids: NDArray[np.int32], lengths: NDArray[np.int64], tokens: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The rows up to and including the first at which their total reaches `tokens`."""
    rows = int(np.searchsorted(np.cumsum(lengths), tokens)) + 1
    return ids[: int(lengths[:rows].sum())], lengths[:rows]
