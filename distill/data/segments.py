"""Pairs of segments of a corpus: whole sentences of one document, split in two, of which some pairs are changed.

For next sentence prediction (Devlin et al. 2019, arXiv 1810.04805, section 3.1) the second segment of half of the pairs
is replaced by another document's. For sentence order prediction (Lan et al. 2020, arXiv 1909.11942, section 3.1) the
segments of half of the pairs are swapped. As in their code, a pair is split before any of its sentences but the first.

What is drawn depends on seed and epoch alone, so that processes agree and training can resume.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from distill.config.feature_kinds import NEXT_SENTENCE, SENTENCE_ORDER
from distill.data.collate import pad
from distill.data.encode import Encoded, Sentences, batches, offsets_of, special_tokens
from distill.data.sequences import SHORTEST, mapped, mostly_unknown
from distill.data.tokens import types_of
from distill.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Ints = NDArray[np.int64]
Batch = dict[str, NDArray[Any]]

_STREAM = 1
"""Third number of the seed: batches are drawn with the first two, seed and epoch, alone."""
_ENDS = re.compile(r"[.!?؟।…]{1,8}[\"'”’»)\]]{0,4}(?=\s+(\S))|[。！？｡]{1,8}[”’」』）]{0,4}|\n+")
_IDS, _STARTS = "ids.int32", "starts.int32"
_COUNTS = ("offsets", "start_offsets")
_DOCUMENTS = "documents.npy"


@dataclass(frozen=True)
class Frame:
    """The special tokens that a tokenizer puts before, between and after the texts of a pair."""

    ids: tuple[NDArray[np.int32], ...]
    """These tokens, in three parts."""
    types: tuple[NDArray[np.int8], ...]
    """Token types of the first part, the first text, the second part, the second text and the third part."""

    @property
    def size(self) -> int:
        """Number of special tokens."""
        return sum(map(len, self.ids))

    def content(self, row: NDArray[np.int32]) -> NDArray[np.int32]:
        """The tokens of a stored pair without the special ones, from all of them."""
        return row[len(self.ids[0]) : len(row) - self.size + len(self.ids[0])]

    def around(self, first: NDArray[np.int32], second: NDArray[np.int32]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Token ids and token types [n] of a pair of texts."""
        before, between, after = self.ids
        parts = (before, first, between, second, after)
        types = [np.resize(types, len(part)) for types, part in zip(self.types, parts, strict=True)]
        return np.concatenate(parts), np.concatenate(types)


def frame_of(tokenizer: PreTrainedTokenizerBase) -> Frame:
    """The frame of a tokenizer that puts a special token between the texts of a pair, found by encoding one."""
    probe = tokenizer("a", "a", return_token_type_ids=True)
    own = types_of(tokenizer, probe["input_ids"], probe["token_type_ids"])
    ids, types = np.array(probe["input_ids"], np.int32), np.array(own, np.int8)
    of_text: list[int | None] = probe.sequence_ids(0)
    edges = [edge for n in (0, 1) for edge in (of_text.index(n), len(of_text) - of_text[::-1].index(n))]
    parts = [slice(*both) for both in pairwise([0, *edges, len(ids)])]
    return Frame(tuple(ids[part] for part in parts[::2]), tuple(types[part] for part in parts))


def sentence_ends(text: str) -> list[int]:
    """The characters of a text after which a sentence ends: after a full stop and the like that no lower-case letter
    follows, and at the end of a line."""
    return [found.end() for found in _ENDS.finditer(text) if not (found[1] or "").islower()]


def pieces(starts: Sequence[int], count: int, room: int) -> Iterator[tuple[int, int]]:
    """Spans (first token, end) of at most `room` tokens that cover a document of `count` tokens: as many whole
    sentences as fit, or a part of a longer one.

    starts: first tokens of its sentences but the first, ascending.
    """
    begin = end = 0
    for stop in (*starts, count):
        if stop - begin > room:
            if end > begin:
                yield begin, end
            begin = end
            if stop - begin > room:  # a part of it would not begin or end with a sentence
                yield from ((at, min(at + room, stop)) for at in range(begin, stop, room))
                begin = stop
        end = stop
    if end > begin:
        yield begin, end


def encode_segments(
    folder: Path,
    texts: Sequence[str],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    max_tokens: int | None = None,
) -> int:
    """Write documents into `folder` as sequences of whole sentences, of at most `max_length` tokens as a pair.

    One space is between two sentences, and before a document where the first token would otherwise differ from one
    within a text: what stands first does not tell whether segments were swapped.

    Sequences are dropped as by `sequences.encode_corpus`. Encoding stops with the batch of documents that reaches
    `max_tokens`. Returns the number of tokens written; `stored_segments` loads them.
    """
    frame, single, space = frame_of(tokenizer), special_tokens(tokenizer), _space(tokenizer)
    lengths, numbers, documents, document, total = [0], [0], list[int](), 0, 0
    with (folder / _IDS).open("wb") as to_ids, (folder / _STARTS).open("wb") as to_starts:
        for batch in batches(texts):
            split = [_sentences(text) for text in batch]
            joined = [space + " ".join(sentences) for sentences in split]
            encodings = tokenizer.backend_tokenizer.encode_batch(joined, add_special_tokens=False)
            for sentences, encoding in zip(split, encodings, strict=True):
                document += 1
                ends = np.cumsum([len(space), *(len(sentence) + 1 for sentence in sentences)])[1:] - 1
                for ids, starts in _rows(ends, encoding, max_length - frame.size):
                    pair = frame.around(ids, ids[:0])[0]
                    row = pair if len(starts) else np.array([*single[0], *ids, *single[1]], np.int32)
                    if len(row) < SHORTEST or mostly_unknown(row.tolist(), tokenizer):
                        continue
                    row.tofile(to_ids)
                    starts.tofile(to_starts)
                    lengths.append(len(row))
                    numbers.append(len(starts))
                    documents.append(document)
                    total += len(row)
            if max_tokens is not None and total >= max_tokens:
                break
    for name, counts in zip(_COUNTS, (lengths, numbers), strict=True):
        np.save(folder / f"{name}.npy", np.cumsum(counts))
    np.save(folder / _DOCUMENTS, np.array(documents, np.int64))
    return total


def _sentences(text: str) -> list[str]:
    """The sentences of a text, without the white space around them."""
    parts = (text[begin:end].strip() for begin, end in pairwise([0, *sentence_ends(text), len(text)]))
    return [part for part in parts if part]


def _space(tokenizer: PreTrainedTokenizerBase) -> str:
    """A space, if a tokenizer makes another token of a word that begins a text than of one within it."""
    ids = tokenizer.backend_tokenizer.encode("a a", add_special_tokens=False).ids
    return "" if ids[0] == ids[-1] else " "


def _rows(ends: Ints, encoding: Any, room: int) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32]]]:
    """Token ids of each piece of a document, and the first tokens of its sentences but the first. `ends`: characters at
    which its sentences end."""
    ids = np.array(encoding.ids, np.int32)
    begins = np.array([begin for begin, _ in encoding.offsets], np.int64)
    starts = np.unique(np.searchsorted(begins, ends))
    starts = starts[(starts > 0) & (starts < len(ids))]
    for begin, end in pieces(starts.tolist(), len(ids), room):
        yield ids[begin:end], (starts[(starts > begin) & (starts < end)] - begin).astype(np.int32)


def stored_segments(folder: Path) -> Encoded:
    """The corpus that `encode_segments` wrote into `folder`, memory-mapped. The special tokens between the texts of a
    pair stand at its end."""
    offsets, numbers = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in _COUNTS)
    sentences = Sentences(mapped(folder / _STARTS), numbers, np.load(folder / _DOCUMENTS, mmap_mode="r"))
    return Encoded(mapped(folder / _IDS), offsets, None, None, sentences=sentences)


@dataclass(frozen=True)
class Drawn:
    """How the n rows of a corpus become pairs in an epoch. Each array has an entry for each row, [n]."""

    cuts: Ints
    """Number of tokens of the first segment; 0 for a row of one sentence, which is no pair."""
    seconds: Ints
    """Number of the row whose second segment it gets; most often its own."""
    swapped: NDArray[np.bool_]
    """Whether the second segment comes first."""

    @property
    def changed(self) -> NDArray[np.bool_]:
        """Whether the segments are not those of the text, in its order."""
        return self.swapped | (self.seconds != np.arange(len(self.seconds)))


def _replaced(drawn: Drawn, chosen: Ints, after: Ints, documents: Ints, random: np.random.Generator) -> Drawn:
    """Each of the chosen rows gets the second segment of the chosen one, of another document, whose segment is the
    longest that is not longer than its own.

    So lengths do not tell the two apart, no sequence becomes longer, and nearly all segments are used once. Deviation:
    BERT draws from all documents, and cuts what is too long.
    """
    order = random.permutation(chosen)
    order = order[np.argsort(after[order], kind="stable")]
    run = np.zeros(len(order), np.int64)
    new = np.flatnonzero(np.diff(documents[order])) + 1
    run[new] = new
    run = np.maximum.accumulate(run)  # first of the neighbours in this order that are of the same document
    seconds = drawn.seconds.copy()
    seconds[order[run > 0]] = order[run[run > 0] - 1]
    return Drawn(drawn.cuts, seconds, drawn.swapped)


def _swapped(drawn: Drawn, chosen: Ints, after: Ints, documents: Ints, random: np.random.Generator) -> Drawn:
    swapped = drawn.swapped.copy()
    swapped[chosen] = True
    return Drawn(drawn.cuts, drawn.seconds, swapped)


@dataclass(frozen=True)
class Change:
    """How pairs are changed for a kind of term."""

    drawn: Callable[[Drawn, Ints, Ints, Ints, np.random.Generator], Drawn]
    """Function of unchanged pairs of n rows, the numbers of the rows to change, the lengths of second segments [n], the
    documents of rows [n], and a generator."""
    documents: int = 1
    """Number of documents with pairs that it needs."""


CHANGES = {NEXT_SENTENCE.name: Change(_replaced, documents=2), SENTENCE_ORDER.name: Change(_swapped)}
"""Kind of term on pairs -> how they are changed."""


def draw(corpus: Encoded, kind: str, size: int, *, seed: int, epoch: int) -> Drawn:
    """The pairs of an epoch for a kind of term in `CHANGES`. `size`: number of special tokens of a pair."""
    assert corpus.sentences is not None
    sentences, count = corpus.sentences, len(corpus)
    random = np.random.default_rng([seed, epoch, _STREAM])
    several = np.diff(sentences.offsets)
    place = sentences.offsets[:-1] + (random.random(count) * several).astype(np.int64)
    pairs = several > 0
    cuts = np.zeros(count, np.int64)
    cuts[pairs] = sentences.starts[place[pairs]]
    chosen = np.flatnonzero(pairs & (random.random(count) < 0.5))
    plain = Drawn(cuts, np.arange(count), np.zeros(count, np.bool_))
    return CHANGES[kind].drawn(plain, chosen, corpus.lengths - size - cuts, sentences.documents, random)


def paired(corpus: Encoded, kind: str, tokenizer: PreTrainedTokenizerBase, seed: int) -> Callable[[Ints, int], Batch]:
    """A function from row numbers [B] and epoch to a batch as from `pad`, whose rows are pairs.

    A batch also has `pairs` [P], the numbers of its rows that are pairs, and `pair_labels` [P], 1 for those that were
    changed. Rows of one sentence are no pairs.
    """
    frame, pad_id = frame_of(tokenizer), tokenizer.pad_token_id
    # Two epochs, because the batches of the next one are collated ahead.
    of_epoch = functools.lru_cache(2)(lambda epoch: draw(corpus, kind, frame.size, seed=seed, epoch=epoch))

    def stored(row: int) -> NDArray[np.int32]:
        return corpus.ids[corpus.offsets[row] : corpus.offsets[row + 1]]

    def row_of(row: int, drawn: Drawn) -> tuple[NDArray[Any], NDArray[Any]]:
        whole, other = stored(row), drawn.seconds[row]
        if not drawn.cuts[row]:
            return whole, np.zeros(len(whole), np.int8)
        first = frame.content(whole)[: drawn.cuts[row]]
        second = frame.content(stored(other))[drawn.cuts[other] :]
        return frame.around(*((second, first) if drawn.swapped[row] else (first, second)))

    def batch(rows: Ints, epoch: int) -> Batch:
        drawn = of_epoch(epoch)
        ids, types = zip(*(row_of(int(row), drawn) for row in rows), strict=True)
        lengths = np.array([len(each) for each in ids], np.int64)
        made = Encoded(np.concatenate(ids), offsets_of([lengths]), np.concatenate(types), None)
        pairs = np.flatnonzero(drawn.cuts[rows])
        labels = drawn.changed[np.asarray(rows)[pairs]].astype(np.int64)
        return pad(made, np.arange(len(rows)), pad_id) | {"pairs": pairs, "pair_labels": labels}

    return batch


def check_pairs(corpus: Encoded, kind: str) -> None:
    """Raise DataError for a corpus without pairs for a kind of term."""
    assert corpus.sentences is not None
    pairs = np.diff(corpus.sentences.offsets) > 0
    if not pairs.any():
        raise DataError(
            f"corpus: got no sequence of two sentences; must have some for a term on {kind}; give whole documents, or "
            "a larger corpus.max_length"
        )
    if (needed := CHANGES[kind].documents) > (found := len(np.unique(corpus.sentences.documents[pairs]))):
        raise DataError(
            f"corpus: got {found} document with a pair; must be {needed} or more for a term on {kind}, whose second "
            "segments are of other documents; put each document on a line of its own, or leave the term out"
        )
