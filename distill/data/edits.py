"""Edits of a text: words replaced, as in TinyBERT (Jiao et al. 2020, arXiv 1909.10351). Deviations: words are dropped
and swapped too, and any word may be edited, where the authors' code leaves out stop words. Without torch."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from distill.data.task_types.words import LETTER, MARKS, UNSPACED

EDITED, REPLACED, DROPPED = 0.15, 0.6, 0.2
"""Share of the words of a text that are edited; of these, shares that are replaced and dropped. The rest are swapped
with the next word."""

Predicted = Callable[[Sequence[tuple[str, Sequence[int]]]], Sequence[Mapping[int, Sequence[str]]]]
"""(texts, each with the numbers of the words to replace among its words, as in `places`) -> for each text, number of a
word -> the words that a masked language model predicts in its place. Words without predictions are left out."""

_DIVIDED = re.compile(rf"{LETTER}|[^\s{UNSPACED}]+")
"""A word of a text between spaces, or a letter of a script without spaces between words."""

_WORD = re.compile(rf"(\W*)(.*?)([^\w{MARKS}]*)")
"""A word between spaces, between the punctuation around it."""


def edited(text: str, replace: Callable[[int, str], str], random: np.random.Generator) -> str:
    """A text with a share `EDITED` of its words, but at least one, replaced, dropped or swapped with the next.

    Args:
        replace: (number of a word in the text, the word) -> the word that replaces it.
    """
    found = [*_DIVIDED.finditer(text)]
    if not found:
        return text
    words = [each[0] for each in found]
    # The first word is joined as the second is, because it may come after it.
    joined = [one.end() == other.start() for one, other in itertools.pairwise(found)]
    spaces = ["" if each else " " for each in [*joined[:1], *joined] or [False]]
    chosen = random.random(len(words)) < EDITED
    chosen[random.integers(len(words))] = True
    order: list[int | None] = [*range(len(words))]
    for place in np.flatnonzero(chosen):
        action, number = random.random(), order[place]
        assert number is not None  # a place is dropped when it is reached, and never moved
        if action < REPLACED:
            words[number] = replace(number, words[number])
        elif action < REPLACED + DROPPED:
            order[place] = None
        elif place + 1 < len(words):
            order[place], order[place + 1] = order[place + 1], order[place]
    kept = [number for number in order if number is not None]
    return "".join(spaces[number] + words[number] for number in kept).removeprefix(" ") or text


def replaced(
    word: str,
    predicted: Sequence[str],
    similar: Mapping[str, Sequence[str]],
    vocabulary: Sequence[str],
    random: np.random.Generator,
) -> str:
    """Another word, with the punctuation around the one that it replaces: one of `predicted`, or of its words in
    `similar`, or else of `vocabulary`. Where that is empty too, the word stays."""
    before, core, after = _parts(word)
    others = predicted or similar.get(core) or similar.get(core.lower())
    if not others:
        return f"{before}{vocabulary[int(random.integers(len(vocabulary)))]}{after}" if vocabulary else word
    other = others[int(random.integers(len(others)))]
    return f"{before}{other.capitalize() if core[:1].isupper() and other.islower() else other}{after}"


def _parts(word: str) -> tuple[str, ...]:
    inside = _WORD.fullmatch(word)
    assert inside is not None
    return inside.groups()


def places(text: str) -> list[tuple[int, int]]:
    """First character and end of each word, as `edited` divides a text, without the punctuation around it."""
    found = []
    for word in _DIVIDED.finditer(text):
        before, _, after = _parts(word[0])
        found.append((word.start() + len(before), word.end() - len(after)))
    return found
