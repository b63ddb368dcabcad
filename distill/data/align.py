"""Encodes each text with two tokenizers and pairs the tokens that end at the same character."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from distill.data.collate import pad
from distill.data.encode import Encoded, batches, special_tokens
from distill.data.sequences import SHORTEST, mapped, mostly_unknown

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_FILES = ("ids", "teacher_ids", "pairs")
_OFFSETS = ("offsets", "teacher_offsets", "pair_offsets")

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Aligned:
    """A corpus encoded with two tokenizers. Row r of both encodings holds the same text."""

    student: Encoded
    teacher: Encoded
    pairs: NDArray[np.int32]
    """[P, 2] positions, in the student's and in the teacher's row, of two tokens that end at the same character."""
    offsets: Ints
    """[n + 1] start of each row's pairs in `pairs`."""


def encode_aligned(
    folder: Path,
    texts: Iterable[str],
    student: PreTrainedTokenizerBase,
    teacher: PreTrainedTokenizerBase,
    max_length: int,
    max_tokens: int | None = None,
) -> int:
    """`encode_corpus` for two tokenizers: documents are split only at characters where a token of each ends.

    Every piece has at most `max_length` tokens in both encodings, special tokens included. Text between two common
    token ends that is longer than that is dropped. Returns the number of tokens written in the student's encoding.
    """
    specials = [special_tokens(tokenizer) for tokenizer in (student, teacher)]
    rooms = [max_length - len(prefix) - len(suffix) for prefix, suffix in specials]
    lengths: tuple[list[int], ...] = ([], [], [])
    total = 0
    files = [(folder / name).open("wb") for name in _FILES]
    try:
        for batch in batches(texts):
            encoded = [t.backend_tokenizer.encode_batch(batch, add_special_tokens=False) for t in (student, teacher)]
            for document in zip(*encoded, strict=True):
                for student_span, teacher_span, pairs in _pieces(document[0].offsets, document[1].offsets, *rooms):
                    spans = (student_span, teacher_span)
                    rows = [
                        [*prefix, *tokens.ids[span], *suffix]
                        for (prefix, suffix), tokens, span in zip(specials, document, spans, strict=True)
                    ]
                    if len(rows[0]) < SHORTEST or any(map(mostly_unknown, rows, (student, teacher))):
                        continue
                    shift = np.array([len(prefix) for prefix, _ in specials])
                    for file, values in zip(files, (*rows, pairs + shift), strict=True):
                        np.asarray(values, np.int32).tofile(file)
                    for counts, count in zip(lengths, (len(rows[0]), len(rows[1]), len(pairs)), strict=True):
                        counts.append(count)
                    total += len(rows[0])
            if max_tokens is not None and total >= max_tokens:
                break
    finally:
        for file in files:
            file.close()
    for name, length in zip(_OFFSETS, lengths, strict=True):
        np.save(folder / f"{name}.npy", np.cumsum([0, *length]))
    return total


def stored_aligned(folder: Path) -> Aligned:
    """The corpus that `encode_aligned` wrote into `folder`, memory-mapped."""
    ids, teacher_ids, pairs = (mapped(folder / name) for name in _FILES)
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
    """Splits a document into pieces: (span of student tokens, span of teacher tokens, pairs [P, 2] within the spans).

    `student` and `teacher` are the character offsets (start, end) of each token; `room` and `teacher_room` are the
    largest numbers of tokens in a piece.
    """
    student_ends, teacher_ends = (np.array([end for _, end in offsets], np.int64) for offsets in (student, teacher))
    common = np.intersect1d(student_ends, teacher_ends)
    # Number of tokens up to each common end. side="right": several byte-level tokens can end at one character.
    student_counts, teacher_counts = (
        np.searchsorted(ends, common, side="right") for ends in (student_ends, teacher_ends)
    )
    first, done = 0, (0, 0)
    while first < len(common):
        last = min(
            int(np.searchsorted(student_counts, done[0] + room, side="right")),
            int(np.searchsorted(teacher_counts, done[1] + teacher_room, side="right")),
        )
        stop = last if last > first else first + 1
        until = int(student_counts[stop - 1]), int(teacher_counts[stop - 1])
        if last > first:  # otherwise the text up to the next common end is too long, and dropped
            counts = np.stack([student_counts[first:last], teacher_counts[first:last]], axis=1)
            yield slice(done[0], until[0]), slice(done[1], until[1]), counts - 1 - np.array(done)
        done, first = until, stop


def pad_aligned(aligned: Aligned, rows: NDArray[np.int64], width: int, pad_id: int) -> dict[str, NDArray[np.int64]]:
    """The teacher's inputs for these rows, and the positions at which its tokens align with the student's.

    Returns `teacher_input_ids`, `teacher_attention_mask` and `teacher_token_type_ids` [B, L'], and two arrays [P] of
    flat positions of the paired tokens: `aligned` in the student's batch [B, width], and `teacher_aligned` in the
    teacher's [B, L'].
    """
    batch = {f"teacher_{name}": value for name, value in pad(aligned.teacher, rows, pad_id).items()}
    index = np.asarray(rows, np.int64)
    start = aligned.offsets[index]
    counts = aligned.offsets[index + 1] - start
    batch_row = np.repeat(np.arange(len(index)), counts)
    source = np.arange(len(batch_row)) + np.repeat(start - (np.cumsum(counts) - counts), counts)
    pairs = aligned.pairs[source].astype(np.int64)
    batch["aligned"] = batch_row * width + pairs[:, 0]
    batch["teacher_aligned"] = batch_row * batch["teacher_input_ids"].shape[1] + pairs[:, 1]
    return batch
