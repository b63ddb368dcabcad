"""The words of texts that are not divided into words by their file, and the texts of words that are. Without torch."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from distill.data.task_types.task_type import Words

UNSPACED = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
    "\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46\u0e81-\u0eb0\u0eb2\u0eb3\u0ebd-\u0ec6\u0edc-\u0edf\u0f40-\u0f6c"
    "\u1000-\u102a\u103f\u1050-\u1055\u1780-\u17b3"
)
"""Letters of scripts that have no spaces between words: Chinese, Japanese, Thai, Lao, Tibetan, Burmese and Khmer."""

MARKS = "".join(mark for mark in map(chr, range(0x300, 0xAC00)) if unicodedata.category(mark)[0] == "M")
MARKS += "\ufb1e\ufe00-\ufe0f\ufe20-\ufe2f\uff9e\uff9f"
"""Characters that belong to the letter before them: vowels of Hindi and Tamil, tones of Thai, points of Arabic and
Hebrew, and accents that are characters of their own. `\\w` has none of them but the two of halfwidth Japanese."""

LETTER = rf"[{UNSPACED}][{MARKS}]*"
"""A letter of a script without spaces between words."""

LETTERS = rf"[^\W{UNSPACED}]+(?:[{MARKS}]+[^\W{UNSPACED}]*)*"
"""Letters and digits of other scripts."""

WORD = re.compile(rf"{LETTER}|{LETTERS}|[^\w\s]")
"""A word of a text that is not divided into words by the file: letters and digits, a letter of a script without spaces
between words, or one other character."""


def words_of(text: str) -> list[tuple[int, int]]:
    """First character and end of each word of a text."""
    return [match.span() for match in WORD.finditer(text)]


def from_words(words: Sequence[str]) -> Words:
    """The text of words, joined by spaces, and the first character and end of each word in it."""
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    return " ".join(words), [(int(end) - len(word), int(end)) for word, end in zip(words, ends, strict=True)]


def divide(text: str | Sequence[str]) -> Words:
    """A text, and the first character and end of each of its words, from the text or from its words."""
    return (text, words_of(text)) if isinstance(text, str) else from_words(text)
