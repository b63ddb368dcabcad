"""The transfer set of a task: rows without labels, which its teacher labels for the student. Without torch.

A student that learns from the task's rows alone sees outputs on texts that the teacher was trained on, and few of them.
More texts with the teacher's outputs help more than more steps: Hinton et al. 2015 (arXiv 1503.02531) call them the
transfer set; Turc et al. 2019 (arXiv 1908.08962) take unlabelled texts of the domain, TinyBERT (Jiao et al. 2020, arXiv
1909.10351) substitutes words. Dai and Adel 2020 (arXiv 2010.11683) exchange mentions of the same type. `HeldOut` says
which texts and rows of development and reported splits are kept out of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, compress, count, islice, repeat
from typing import Any

import numpy as np

from distill.data.edits import Predicted, edited, replaced
from distill.data.near import NearCopies, normalized
from distill.data.similar import Index
from distill.data.task_types.words import LETTER, LETTERS

Row = tuple[Any, ...]
"""Parts of a row, as in `Making`: one text, the words of one, two texts, or one text or two and their choices."""

Span = tuple[int, int, int]
"""Start, end and type of a part of a text, in words of a text in words, else in characters."""

NEAREST = 8
"""Texts among which one that is similar to another is drawn. For sentences of a corpus they become more when as many
were drawn as there are such pairs of texts, because most of those were drawn by then."""

NEAR = 0.5
"""Share of new pairs whose texts are similar. The others are drawn at random, and seldom have anything in common."""

TRIES = 4
"""Rows that a source may make for each that is wanted, before it counts as exhausted."""

CHANGED = 0.5
"""Share of the spans of a text, and of the choices of a question, that are exchanged; but at least one."""

MOST_CHOICES = 50_000
"""Choices that others are exchanged for, drawn at random from more."""

VOCABULARY = re.compile(rf"{LETTER}|{LETTERS}")
"""A word that may replace another: letters and digits, or a letter of a script without spaces between words."""

_AT_ONCE = 512


def _as_it_is(text: str) -> Any:
    return text


@dataclass(frozen=True)
class Pool:
    """The sources of the rows of a transfer set. All rows have the parts of the task's rows."""

    own: Sequence[Row]
    """The task's training rows."""
    files: Sequence[Row] = ()
    """Rows of the user's unlabelled files."""
    tasks: Sequence[Row] = ()
    """Training rows of the other tasks."""
    corpus: Sequence[str] = ()
    """Sentences of the corpus."""
    words: Mapping[str, Sequence[str]] | None = None
    """Word -> words with similar embeddings."""
    spans: Sequence[Sequence[Span]] = ()
    """The spans of each row of `own`; empty for tasks without spans."""
    part: Callable[[str], Any] = _as_it_is
    """A text -> the text as it is in rows of the task."""
    predicted: Predicted | None = None
    """Predicts words in place of others, from the words around them; None without such a model."""


@dataclass(frozen=True)
class HeldOut:
    """What no row of a transfer set may have.

    Rows of several texts may share one with a held-out row by design: a fixed question, or a document that all splits
    have. So texts that the task's training rows have too are allowed in them, but not together with the same others.
    """

    texts: NearCopies
    """Texts of development and reported splits of all tasks."""
    rows: Set[Row] = frozenset()
    """Keys, as from `key`, of the development and reported rows of the task, if its rows have several texts. A pair in
    the other order is the same row."""
    known: Set[str] = frozenset()
    """Normalized texts of all training rows of the task, if its rows have several texts."""


@dataclass(frozen=True)
class Made:
    """A transfer set."""

    rows: list[Row]
    """In random order, so that the first k are as mixed as all."""
    counts: dict[str, int]
    """Source -> number of its rows."""
    held_out: int
    """Rows that were made, and left out because one of their texts is, or is nearly, a text of a development or
    reported split, or all of them together are such a row."""


def texts_of(row: Row) -> list[str]:
    """The texts of a row that are compared with held-out texts. Choices alone, such as yes and no, are none."""
    first = row[0] if isinstance(row[0], str) else " ".join(row[0])
    return [first, *(part for part in row[1:] if isinstance(part, str))]


def pieces(row: Row) -> list[str]:
    """The texts of a row, one by one: also each of its words, or of its choices."""
    return [text for part in row for text in ([part] if isinstance(part, str) else part)]


def key(row: Row) -> Row:
    """A row in a form that is equal for copies: its normalized texts, and its normalized choices as one part."""
    choices = [tuple(map(normalized, part)) for part in row[1:] if not isinstance(part, str)]
    return (*map(normalized, texts_of(row)), *choices)


def made(
    pool: Pool,
    shares: Mapping[str, float],
    most: int,
    held_out: HeldOut,
    random: np.random.Generator,
    done: Callable[[int], object] = lambda _: None,
) -> Made:
    """At most `most` rows, all different and not in `pool.own`.

    A source that has fewer rows than its share leaves the rest to the sources after it in `SOURCES`, of which the last
    make as many rows as are wanted.

    Args:
        shares: source -> its share of the rows; they need not add up to 1.
        done: is called with the number of rows that were made since its last call.
    """
    seen, verdicts = set(map(key, pool.own)), dict[str, bool]()
    rows: list[Row] = []
    counts, dropped = dict.fromkeys(SOURCES, 0), 0
    for number, source in enumerate(SOURCES):
        rest = sum(shares.get(name, 0) for name in list(SOURCES)[number:])
        wanted = round((most - len(rows)) * shares.get(source, 0) / rest) if rest else 0
        for part in _batches(islice(SOURCES[source](pool, random), TRIES * wanted)):
            if counts[source] >= wanted:
                break
            fresh = {k: row for k, row in zip(map(key, part), part, strict=True) if _is_text(k) and k not in seen}
            texts = {k: _compared(k, row, held_out) for k, row in fresh.items()}
            new = [text for text in dict.fromkeys(chain(*texts.values())) if text not in verdicts]
            verdicts |= zip(new, held_out.texts.find(new).tolist(), strict=True)
            before = counts[source]
            for each, row in fresh.items():
                held = not held_out.rows.isdisjoint((each, each[::-1])) or any(verdicts[text] for text in texts[each])
                if counts[source] < wanted:
                    seen.add(each)
                    dropped += held
                    rows += [] if held else [row]
                    counts[source] += not held
            done(counts[source] - before)
    order = random.permutation(len(rows))
    return Made([rows[n] for n in order], {source: n for source, n in counts.items() if n}, dropped)


def _is_text(normal: Row) -> bool:
    """Whether the texts of a row, of which this is the key, have letters. Before choices, the second may have none."""
    return all(normal) if len(normal) < 3 else bool(normal[0])


def _compared(normal: Row, row: Row, held_out: HeldOut) -> list[str]:
    """The texts of a row, of which `normal` is the key, that must not be near to a held-out text."""
    allowed = held_out.known if len(row) > 1 else frozenset[str]()
    return [text for text, letters in zip(texts_of(row), normal, strict=False) if letters not in allowed]


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    rest = iter(rows)
    while part := list(islice(rest, _AT_ONCE)):
        yield part


def _shuffled(rows: Sequence[Row], random: np.random.Generator) -> Iterator[Row]:
    return (rows[n] for n in random.permutation(len(rows)))


def _files(pool: Pool, random: np.random.Generator) -> Iterator[Row]:
    return _shuffled(pool.files, random)


def _tasks(pool: Pool, random: np.random.Generator) -> Iterator[Row]:
    return _shuffled(pool.tasks, random)


def _corpus(pool: Pool, random: np.random.Generator) -> Iterator[Row]:
    """Sentences of the corpus that are similar to texts of the task; for pairs, with another such sentence."""
    sentences = list(pool.corpus)
    if not sentences or not pool.own:
        return
    firsts, index = [texts_of(row)[0] for row in pool.own], Index(sentences)
    size = min(_AT_ONCE, NEAREST * len(firsts))
    for before in count(0, size):
        nearest = max(NEAREST, before // len(firsts))
        drawn = [firsts[n] for n in random.integers(len(firsts), size=size)]
        found = [sentences[n] for n in _one_of(index.nearest(drawn, nearest), random)]
        yield from (
            _paired(found, sentences, index, random)
            if len(pool.own[0]) == 2
            else ((pool.part(text),) for text in found)
        )


def _pairs(pool: Pool, random: np.random.Generator) -> Iterator[Row]:
    """First texts of the task's pairs, each with the second text of another pair, or with choices of others."""
    if not pool.own or len(pool.own[0]) < 2:
        return
    if not isinstance(pool.own[0][-1], str):
        yield from _mixed(pool.own, random)
        return
    firsts, seconds = (list(dict.fromkeys(column)) for column in zip(*pool.own, strict=True))
    index = Index(seconds)
    while True:
        drawn = [firsts[n] for n in random.integers(len(firsts), size=_AT_ONCE)]
        yield from _paired(drawn, seconds, index, random)


def _paired(firsts: Sequence[str], seconds: Sequence[str], index: Index, random: np.random.Generator) -> Iterator[Row]:
    """Each first text with one of `seconds`, which `index` has: a share `NEAR` with a similar one, others with any."""
    chosen = random.integers(len(seconds), size=len(firsts))
    near = np.flatnonzero(random.random(len(firsts)) < NEAR)
    if len(near):
        chosen[near] = _one_of(index.nearest([firsts[n] for n in near.tolist()], NEAREST), random)
    return ((first, seconds[n]) for first, n in zip(firsts, chosen, strict=True))


def _mixed(own: Sequence[Row], random: np.random.Generator) -> Iterator[Row]:
    """Rows with some of their choices exchanged for those of other rows, a share `NEAR` of them for similar ones."""
    every = list(dict.fromkeys(choice for *_, choices in own for choice in choices))
    if len(every) > MOST_CHOICES:
        every = [every[n] for n in random.choice(len(every), MOST_CHOICES, replace=False)]
    index = Index(every)
    while True:
        drawn = [own[n] for n in random.integers(len(own), size=_AT_ONCE)]
        flags = [_some(len(choices), random) for *_, choices in drawn]
        changed = [c for (*_, choices), new in zip(drawn, flags, strict=True) for c in compress(choices, new)]
        others = (choice for _, choice in _paired(changed, every, index, random))
        for (*texts, choices), new in zip(drawn, flags, strict=True):
            mixed = tuple(next(others) if other else choice for choice, other in zip(choices, new, strict=True))
            if len({*mixed}) == len(mixed):
                yield (*texts, mixed)


def _some(number: int, random: np.random.Generator) -> np.ndarray:
    """[number] flags, of which a share `CHANGED`, but at least one, is true."""
    flags = random.random(number) < CHANGED
    flags[random.integers(number)] = True
    return flags


def _spans(pool: Pool, random: np.random.Generator) -> Iterator[Row]:
    """The task's rows with spans exchanged for others of the same type: mention replacement."""
    known: dict[int, list[Any]] = {}
    for (text,), spans in zip(pool.own, pool.spans, strict=False):
        for start, end, kind in spans:
            known.setdefault(kind, []).append(text[start:end])
    rows = np.flatnonzero([len(spans) > 0 for spans in pool.spans])
    while len(rows):
        for number in random.permutation(rows):
            (text,), spans = pool.own[number], pool.spans[number]
            # From the end, so that the places of the spans before stay true.
            for (start, end, kind), new in sorted(zip(spans, _some(len(spans), random), strict=True), reverse=True):
                if new:
                    text = text[:start] + known[kind][int(random.integers(len(known[kind])))] + text[end:]
            yield (text,)


def _one_of(numbers: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """[n] one column of [n, k], drawn for each row."""
    return np.asarray(numbers[np.arange(len(numbers)), random.integers(numbers.shape[1], size=len(numbers))])


def _edits(pool: Pool, random: np.random.Generator) -> Iterator[Row]:
    """The task's rows with words replaced, dropped and swapped, in one of their parts or in both."""
    vocabulary = [word for row in pool.own for text in pieces(row) for word in VOCABULARY.findall(text)]
    if not vocabulary:
        return
    any_word = vocabulary if pool.predicted is None else ()  # TinyBERT puts no word at random

    def new(word: str, predicted: Sequence[str] = ()) -> str:
        return replaced(word, predicted, pool.words or {}, any_word, random)

    def change(text: str, random: np.random.Generator) -> str:
        return edited(text, lambda _, word: new(word), random)

    rows = chain.from_iterable(_shuffled(own, random) for own in repeat(pool.own))
    if pool.predicted is None:
        yield from (_changed(row, change, random) for row in rows)
    else:
        for part in _batches(rows):
            yield from _changed_at_once(part, pool.predicted, new, random)


def _changed(row: Row, change: Callable[[str, np.random.Generator], str], random: np.random.Generator) -> Row:
    """A row with one of its parts or both changed."""
    chosen = random.random(len(row)) < 0.75
    chosen[random.integers(len(row))] = True
    if isinstance(row[0], tuple):
        return (tuple(change(" ".join(row[0]), random).split()),)
    return tuple(
        part
        if not changed
        else change(part, random)
        if isinstance(part, str)
        else tuple(change(text, random) for text in part)
        for part, changed in zip(row, chosen, strict=True)
    )


def _changed_at_once(
    rows: Sequence[Row],
    predicted: Predicted,
    new: Callable[[str, Sequence[str]], str],
    random: np.random.Generator,
) -> list[Row]:
    """Rows edited with words that are predicted for all of them together.

    Each row is edited twice, by random numbers of a seed of its own: first to learn which words are replaced.

    Args:
        new: (word, predictions in its place) -> the word that replaces it.
    """
    seeds = random.integers(2**63, size=len(rows)).tolist()
    asked: list[tuple[str, list[int]]] = []

    def ask(text: str, random: np.random.Generator) -> str:
        def note(number: int, word: str) -> str:
            numbers.append(number)
            return word

        numbers: list[int] = []
        edited(text, note, random)
        asked.append((text, numbers))
        return text

    def fill(text: str, random: np.random.Generator) -> str:
        found = next(answers)
        return edited(text, lambda number, word: new(word, found.get(number, ())), random)

    for row, seed in zip(rows, seeds, strict=True):
        _changed(row, ask, np.random.default_rng(seed))
    answers = iter(predicted(asked))
    return [_changed(row, fill, np.random.default_rng(seed)) for row, seed in zip(rows, seeds, strict=True)]


SOURCES: dict[str, Callable[[Pool, np.random.Generator], Iterable[Row]]] = {
    "files": _files,
    "tasks": _tasks,
    "corpus": _corpus,
    "pairs": _pairs,
    "spans": _spans,
    "edits": _edits,
}
"""Name in `transfer.sources` -> function that makes its rows, in the order of `config.TRANSFER_SOURCES`."""
