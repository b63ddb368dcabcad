"""The same text in the tokens of two tokenizers: which of them end at the same character."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from distill.data.collate import pad
from distill.data.encode import MOST_UNKNOWN, SHORTEST, Encoded, batches, special_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_FILES = ("ids", "teacher_ids", "pairs")
_OFFSETS = ("offsets", "teacher_offsets", "pair_offsets")

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Aligned:
    """Row r of both is the same text."""

    student: Encoded
    teacher: Encoded
    pairs: NDArray[np.int32]
    """[P, 2] positions, in a student's and in a teacher's row, of tokens that end at the same character."""
    offsets: Ints
    """[n + 1] where the pairs of each row start."""


def encode_aligned(
    folder: Path,
    texts: Iterable[str],
    student: PreTrainedTokenizerBase,
    teacher: PreTrainedTokenizerBase,
    max_length: int,
    max_tokens: int | None = None,
) -> int:
    """As `encode_corpus`, for two tokenizers: documents are cut where tokens of both end, and both pieces fit.

    Returns the number of the student's tokens. What lies between two such places and does not fit is left out.
    """
    ends = [special_tokens(tokenizer) for tokenizer in (student, teacher)]
    rooms = [max_length - len(prefix) - len(suffix) for prefix, suffix in ends]
    lengths: tuple[list[int], ...] = ([], [], [])
    total = 0
    files = [(folder / name).open("wb") for name in _FILES]
    try:
        for batch in batches(texts):
            encoded = [t.backend_tokenizer.encode_batch(batch, add_special_tokens=False) for t in (student, teacher)]
            for one, other in zip(*encoded, strict=True):
                for mine, theirs, pairs in _pieces(one.offsets, other.offsets, *rooms):
                    rows = [
                        [*prefix, *tokens.ids[part], *suffix]
                        for (prefix, suffix), tokens, part in zip(ends, (one, other), (mine, theirs), strict=True)
                    ]
                    if len(rows[0]) < SHORTEST or any(map(_unknown, rows, (student, teacher))):
                        continue
                    shift = np.array([len(prefix) for prefix, _ in ends])
                    for file, values in zip(files, (*rows, pairs + shift), strict=True):
                        np.asarray(values, np.int32).tofile(file)
                    for kept, count in zip(lengths, (len(rows[0]), len(rows[1]), len(pairs)), strict=True):
                        kept.append(count)
                    total += len(rows[0])
            if max_tokens is not None and total >= max_tokens:
                break
    finally:
        for file in files:
            file.close()
    for name, length in zip(_OFFSETS, lengths, strict=True):
        np.save(folder / f"{name}.npy", np.cumsum([0, *length]))
    return total


def _unknown(ids: list[int], tokenizer: PreTrainedTokenizerBase) -> bool:
    return tokenizer.unk_token_id is not None and ids.count(tokenizer.unk_token_id) >= MOST_UNKNOWN * len(ids)


def stored_aligned(folder: Path) -> Aligned:
    """What `encode_aligned` wrote, mapped into memory."""
    ids, teacher_ids, pairs = (
        np.asarray(np.memmap(folder / name, np.int32, "r")) if (folder / name).stat().st_size else np.zeros(0, np.int32)
        for name in _FILES
    )
    offsets, teacher_offsets, pair_offsets = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in _OFFSETS)
    return Aligned(
        Encoded(ids, offsets, None, None),
        Encoded(teacher_ids, teacher_offsets, None, None),
        pairs.reshape(-1, 2),
        pair_offsets,
    )


def _pieces(
    student: list[tuple[int, int]], teacher: list[tuple[int, int]], room: int, teacher_room: int
) -> Iterator[tuple[slice, slice, Ints]]:
    """(student's tokens, teacher's tokens, pairs [P, 2] counted from their starts) of each piece of a document.

    Both lists hold the first character of each token and the one after its last.
    """
    own, other = (np.array([end for _, end in offsets], np.int64) for offsets in (student, teacher))
    common = np.intersect1d(own, other)
    # Tokens up to and with the last one that ends there: several do where a character takes more than one.
    mine, theirs = (np.searchsorted(ends, common, side="right") for ends in (own, other))
    first, done = 0, (0, 0)
    while first < len(common):
        last = min(
            int(np.searchsorted(mine, done[0] + room, side="right")),
            int(np.searchsorted(theirs, done[1] + teacher_room, side="right")),
        )
        if last > first:
            pairs = np.stack([mine[first:last] - 1 - done[0], theirs[first:last] - 1 - done[1]], axis=1)
            yield slice(done[0], int(mine[last - 1])), slice(done[1], int(theirs[last - 1])), pairs
        else:
            last = first + 1  # longer than there is room for
        done, first = (int(mine[last - 1]), int(theirs[last - 1])), last


def pad_aligned(aligned: Aligned, rows: NDArray[np.int64], width: int, pad_id: int) -> dict[str, NDArray[np.int64]]:
    """What the teacher reads of these rows, and where it and the student agree.

    `teacher_input_ids` and so on [B, L'], and the flat positions [P] of pairs of tokens that end at the same character:
    `aligned` in the student's batch, `width` tokens wide, and `teacher_aligned` in the teacher's.
    """
    batch = {f"teacher_{name}": value for name, value in pad(aligned.teacher, rows, pad_id).items()}
    index = np.asarray(rows, np.int64)
    start = aligned.offsets[index]
    counts = aligned.offsets[index + 1] - start
    which = np.repeat(np.arange(len(index)), counts)
    source = np.arange(len(which)) + np.repeat(start - (np.cumsum(counts) - counts), counts)
    pairs = aligned.pairs[source].astype(np.int64)
    batch["aligned"] = which * width + pairs[:, 0]
    batch["teacher_aligned"] = which * batch["teacher_input_ids"].shape[1] + pairs[:, 1]
    return batch
