"""Tokenizes texts once, into flat arrays of token ids from which batches are taken by row number."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from distill.data import arrow_compute as pc
from distill.data.task_types import SECONDS, targets_in
from distill.data.tokens import cutting, identity, types_of

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

T = TypeVar("T")

_OFFSETS = "offsets.npy"
_AT_ONCE = 1024
"""Texts per call of the tokenizer."""

STORED = 2048
"""A task's rows are stored in the cache if there are this many; fewer are encoded faster than they are found there."""


@dataclass(frozen=True)
class Words:
    """The W words of texts, in order. A row of `Encoded` is a window of a text: row r has the words `offsets[r]` to
    `offsets[r + 1]`. A word is of one window, also where several contain it."""

    positions: NDArray[np.int64]
    """[W] position, in its row, of the first token of each word; -1 for a word without a token, because the tokenizer
    drops its characters."""
    offsets: NDArray[np.int64]
    """[n + 1] number of the first word of each row, and the number of all words."""
    owners: NDArray[np.int64]
    """[n] number of the text of each row, in ascending order from 0."""
    tokens: NDArray[np.int64]
    """[texts] number of tokens of each text, special tokens included. Windows share some of them."""

    @property
    def of_texts(self) -> NDArray[np.int64]:
        """[texts] number of words of each text, in all of its windows."""
        return np.bincount(self.owners, weights=np.diff(self.offsets)).astype(np.int64)

    @property
    def shares_with_next(self) -> NDArray[np.bool_]:
        """[W] whether a word and the word after it have the same first token, as a SentencePiece tokenizer makes of two
        Chinese letters."""
        rows = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        same = (np.diff(self.positions) == 0) & (np.diff(rows) == 0) & (self.positions[1:] >= 0)
        return np.r_[same, np.zeros(min(1, len(rows)), np.bool_)]

    def only(self, flags: NDArray[np.bool_]) -> Words:
        """The same words, of which words without a flag [W] have no token."""
        return replace(self, positions=np.where(flags, self.positions, -1))


@dataclass(frozen=True)
class Spans:
    """Windows of questions with their contexts, in which answers are spans. A window is a row of `Encoded`."""

    owners: NDArray[np.int64]
    """[windows] number of the question of each window, in ascending order from 0."""
    characters: NDArray[np.int32]
    """[tokens, 2] first character and end, in its context, of each token; -1 for tokens that are not of a context."""


@dataclass(frozen=True)
class Sentences:
    """Where the sentences of a corpus begin, of which each of the n rows has one or several."""

    starts: NDArray[np.int32]
    """First tokens of all sentences but the first of each row, counted in its row without special tokens."""
    offsets: NDArray[np.int64]
    """[n + 1] start of each row's sentences in `starts`."""
    documents: NDArray[np.int64]
    """[n] number of the document of each row."""


@dataclass(frozen=True)
class Encoded:
    """Rows of token ids in one flat array. Without `groups`, row r is `ids[offsets[r]:offsets[r + 1]]`."""

    ids: NDArray[np.int32]
    """Token ids of all rows, flat, special tokens included."""
    offsets: NDArray[np.int64]
    """[n + 1] start of each row, and the end of the last."""
    segments: NDArray[np.int8] | None
    """Token type of each id, flat; None where all are 0 (a corpus)."""
    labels: NDArray[Any] | None
    """[n] or [n, labels] targets of the kind of task (int64, or float32 for numbers); [W] of a task whose rows are
    words; [n, 2] first and last token of the answer in windows; None for a corpus."""
    words: Words | None = None
    """The words of all rows, of a task whose rows are words. The rows are then windows of texts."""
    groups: NDArray[np.int64] | None = None
    """[n + 1] first sequence of each row, and the number of all sequences, of a task whose rows have several, such as a
    question with each of its choices. Sequence s is then `ids[offsets[s]:offsets[s + 1]]`. None for one in each row."""
    spans: Spans | None = None
    """The questions of rows that are windows."""
    sentences: Sentences | None = None
    """The sentences of a corpus whose rows become pairs."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[n] number of tokens in each row."""
        return np.diff(self.offsets if self.groups is None else self.offsets[self.groups])

    @property
    def whole_lengths(self) -> NDArray[np.int64]:
        """[texts] number of tokens of each text in words; of each question with its context, the sum over all of its
        windows; of rows that are not windows `lengths`."""
        if self.words is not None:
            return self.words.tokens
        if self.spans is None:
            return self.lengths
        return np.bincount(self.spans.owners, weights=self.lengths).astype(np.int64)

    @property
    def most(self) -> int:
        """Largest number of sequences in a row."""
        return 1 if self.groups is None else int(np.diff(self.groups).max(initial=0))

    @property
    def sequences(self) -> Encoded:
        """The same tokens, with each sequence as a row, without labels."""
        return replace(self, groups=None, labels=None, spans=None)

    def __len__(self) -> int:
        return len(self.offsets if self.groups is None else self.groups) - 1


def encode_task(
    dataset: Dataset, columns: Sequence[str], tokenizer: PreTrainedTokenizerBase, max_length: int, prompt: str = ""
) -> Encoded:
    """Encode a task's rows, as `encode_texts` does, with the prompt before each text. Labels are taken from the column
    `label` if it exists.

    `STORED` rows or more are memory-mapped from the user's cache, where they are stored by a hash of texts, tokenizer
    (`tokens.identity`) and `max_length`.
    """

    def tokens() -> Iterator[_Tokens]:
        return _tokens(_parts(dataset, columns, prompt), tokenizer, max_length)

    labels, groups = _labels(dataset), _groups(dataset)
    if len(dataset) < STORED:
        return replace(_joined(tokens()), labels=labels, groups=groups)
    from distill.runtime.storage import file_hashes, store
    from distill.runtime.storage.checksums import fingerprint

    code = file_hashes.of_code(Path(__file__).parent)
    key = fingerprint([code, _hash(dataset, columns, prompt), identity(tokenizer), max_length])
    folder = store.get_or_make("encoded", key, lambda folder: _store(folder, tokens()))
    ids, types = (np.asarray(np.memmap(folder / f"ids.{dtype}", dtype, "r")) for dtype in ("int32", "int8"))
    return Encoded(ids, np.load(folder / _OFFSETS, mmap_mode="r"), types, labels, groups=groups)


def encode_texts(texts: Sequence[Sequence[str]], tokenizer: PreTrainedTokenizerBase, max_length: int) -> Encoded:
    """Encode one list of texts, or two of the same length for pairs. The result has no labels.

    Rows are truncated to `max_length` tokens, of a pair the longer text first. Where the tokenizer puts no separator
    between the texts of a pair, a line break is inserted.
    """
    starts = range(0, len(texts[0]), _AT_ONCE)
    return _joined(_tokens(([c[s : s + _AT_ONCE] for c in texts] for s in starts), tokenizer, max_length))


def encode_choices(
    rows: Sequence[tuple[str, Sequence[str]]], tokenizer: PreTrainedTokenizerBase, max_length: int
) -> Encoded:
    """Encode rows of a text with several second texts, as `encode_texts` does with each pair."""
    groups = np.cumsum([0, *(len(seconds) for _, seconds in rows)])
    return replace(encode_texts(_paired(*zip(*rows, strict=True)), tokenizer, max_length), groups=groups)


def alternating(first: Encoded, second: Encoded) -> Encoded:
    """Rows of two sequences each, from two `Encoded` with the same number of rows; without labels."""
    lengths = np.stack([first.lengths, second.lengths], axis=1).ravel()
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    ids, segments = np.empty(offsets[-1], np.int32), np.zeros(offsets[-1], np.int8)
    for place, side in enumerate((first, second)):
        index = np.arange(len(side.ids)) + np.repeat(offsets[place:-1:2] - side.offsets[:-1], side.lengths)
        ids[index] = side.ids
        if side.segments is not None:
            segments[index] = side.segments
    return Encoded(ids, offsets, segments, None, groups=np.arange(0, len(lengths) + 1, 2))


_Tokens = tuple[NDArray[np.int32], NDArray[np.int8], NDArray[np.int64]]
"""Token ids and token types of consecutive rows, flat, and the number of tokens of each row."""


def _tokens(
    parts: Iterable[list[Sequence[str]]], tokenizer: PreTrainedTokenizerBase, max_length: int
) -> Iterator[_Tokens]:
    """The tokens of consecutive parts of the rows; each part is one list of texts, or two for pairs."""
    with cutting(tokenizer):
        for texts in parts:
            if len(texts) == 2 and (between := separator_of(tokenizer)):
                texts = [texts[0], [between + text for text in texts[1]]]
            out = tokenizer(
                *texts, truncation=True, max_length=max_length, return_attention_mask=False, return_token_type_ids=True
            )
            ids, lengths = flattened(out["input_ids"])
            types = types_of(tokenizer, out["input_ids"], out["token_type_ids"])
            yield ids, flattened(types)[0].astype(np.int8), lengths


def _joined(parts: Iterable[_Tokens]) -> Encoded:
    """All parts in memory."""
    empty: _Tokens = (np.zeros(0, np.int32), np.zeros(0, np.int8), np.zeros(0, np.int64))
    ids, types, lengths = zip(empty, *parts, strict=True)
    return Encoded(np.concatenate(ids), offsets_of(lengths), np.concatenate(types), None)


def _parts(dataset: Dataset, columns: Sequence[str], prompt: str = "") -> Iterator[list[Sequence[str]]]:
    """The texts of the sequences of consecutive rows, one list for each text of a pair, with the prompt before each."""
    choices = SECONDS in dataset.column_names
    wanted = [columns[0], SECONDS] if choices else list(columns)
    for part in dataset.select_columns(wanted).with_format("arrow").iter(_AT_ONCE):
        texts = [part[column].to_pylist() for column in wanted]
        texts = [[prompt + text for text in column] for column in texts] if prompt else texts
        yield _paired(*texts) if choices else texts


def _paired(firsts: Sequence[str], seconds: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Each first text as often as it has second texts, and all second texts."""
    repeated = [first for first, texts in zip(firsts, seconds, strict=True) for _ in texts]
    return [repeated, [text for texts in seconds for text in texts]]


def _groups(dataset: Dataset) -> NDArray[np.int64] | None:
    """[n + 1] first sequence of each row; None for rows of one."""
    if SECONDS not in dataset.column_names:
        return None
    sizes = dataset.with_format("arrow")[SECONDS][:]
    return np.cumsum([0, *pc.list_value_length(sizes).to_pylist()])


def _store(folder: Path, parts: Iterable[_Tokens]) -> None:
    """Write token ids, token types and offsets."""
    lengths = []
    with (folder / "ids.int32").open("wb") as to_ids, (folder / "ids.int8").open("wb") as to_types:
        for ids, types, length in parts:
            to_ids.write(ids.data)
            to_types.write(types.data)
            lengths.append(length)
    np.save(folder / _OFFSETS, offsets_of(lengths))


def _hash(dataset: Dataset, columns: Sequence[str], prompt: str) -> str:
    """Hash of the texts, in order."""
    digest = hashlib.sha256()
    for texts in _parts(dataset, columns, prompt):
        for column in texts:
            values = [text.encode("utf-8", "surrogatepass") for text in column]
            # Lengths say where a text ends: every character may be a part of it.
            digest.update(np.array([len(values), *map(len, values)], np.int64).tobytes())
            digest.update(b"".join(values))
    return digest.hexdigest()


def _labels(dataset: Dataset) -> NDArray[Any] | None:
    if "label" not in dataset.column_names:
        return None
    values = targets_in(dataset.with_format("arrow")["label"][:])
    return values.astype(np.float32 if values.dtype.kind == "f" else np.int64)


PAIR_SEPARATOR = "distill_pair_separator"
"""Setting of a tokenizer that puts no special token between the texts of a pair, of models that this project trained:
without it the texts would run into one another. A model that others trained has read them so."""
_separates: WeakKeyDictionary[Any, dict[tuple[int, int], bool]] = WeakKeyDictionary()
"""Tokenizer -> numbers of special tokens around a text and around a pair -> whether some are between the texts."""


def separates(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the tokenizer puts a special token between the texts of a pair. Tokenizers of decoders do not.

    It is found once, because encoding a pair for it takes about as long as encoding a short text.
    """
    found = _separates.setdefault(tokenizer, {})
    numbers = tokenizer.num_special_tokens_to_add(), tokenizer.num_special_tokens_to_add(True)
    if numbers not in found:
        special = tokenizer("a", "a", return_special_tokens_mask=True)["special_tokens_mask"]
        text = [index for index, flag in enumerate(special) if not flag]
        found[numbers] = not text or any(special[text[0] : text[-1] + 1])
    return found[numbers]


def separator_of(tokenizer: PreTrainedTokenizerBase) -> str:
    """The text between the texts of a pair, which is kept with the tokenizer of a model that was trained with it."""
    return str(getattr(tokenizer, "init_kwargs", {}).get(PAIR_SEPARATOR, ""))


def offsets_of(lengths: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """[n + 1] start of each of n rows, and the end of the last, from the lengths of consecutive parts of the rows."""
    return np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths]))


def batches(texts: Iterable[T]) -> Iterator[list[T]]:
    """The texts, or other rows, in lists of at most 1024, in order."""
    rest = iter(texts)
    while batch := list(islice(rest, _AT_ONCE)):
        yield batch


def flattened(rows: list[list[int]]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The values [sum of lengths] of all rows in one flat array, and the length [n] of each row."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum())), lengths


def special_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Special tokens (before, after) that the tokenizer puts around a single text, found by encoding one."""
    probe = tokenizer("a", return_special_tokens_mask=True)
    text = np.flatnonzero(np.asarray(probe["special_tokens_mask"]) == 0)
    # Without `a` in its vocabulary, the tokenizer outputs the unknown token, which is itself special.
    before, after = (int(text[0]), int(text[-1]) + 1) if len(text) else (1, len(probe["input_ids"]) - 1)
    return probe["input_ids"][:before], probe["input_ids"][after:]
