"""Token classification: a tag for each word of a text, by which spans are found, as in named-entity recognition."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from distill.data.kinds.kind import GROUPED, MISSING, Kind, Where, total_variation
from distill.data.kinds.spans import OUTSIDE, codes, spans, split_tag, types_of
from distill.errors import DataError

WORD = re.compile(r"\w+|[^\w\s]")
"""A word of a text that is not divided into words by the file: letters and digits, or one other character."""

SPAN_TYPES = ("label", "type", "entity", "tag")
"""Names of the type in the spans of a file, besides `start` and `end`."""


def words_of(text: str) -> list[tuple[int, int]]:
    """First character and end of each word of a text."""
    return [match.span() for match in WORD.finditer(text)]


def from_words(words: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """The text of a row's words, joined by spaces, and the first character and end of each word in it."""
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    return " ".join(words), [(int(end) - len(word), int(end)) for word, end in zip(words, ends, strict=True)]


def tags_of_spans(text: str, given: Sequence[dict[str, Any]], where: str) -> list[str]:
    """The tag of each word, in the scheme BIO, for spans of characters. DataError for a span that is none of words."""
    words = words_of(text)
    tags = [OUTSIDE] * len(words)
    starts, ends = ({span[n]: number for number, span in enumerate(words)} for n in (0, 1))
    for span in given:
        start, end = span.get("start"), span.get("end")
        kind = next((span[name] for name in SPAN_TYPES if span.get(name)), None)
        if not isinstance(start, int) or not isinstance(end, int) or not isinstance(kind, str):
            raise DataError(f"{where}: got span {span}; must have start, end and label; correct the row")
        if not 0 <= start < end <= len(text):
            raise DataError(f"{where}: got a span from {start} to {end}; must lie in the text's {len(text)} characters; correct it")
        if start not in starts or end not in ends:
            raise DataError(
                f"{where}: got the span {text[start:end]!r}, from {start} to {end}; must begin and end with a word; "
                "correct it"
            )
        first, last = starts[start], ends[end]
        if any(tag != OUTSIDE for tag in tags[first : last + 1]):
            raise DataError(f"{where}: got spans that overlap at {text[start:end]!r}; must not overlap; remove one")
        tags[first : last + 1] = [f"B-{kind}", *[f"I-{kind}"] * (last - first)]
    return tags


def check_tags(tags: Sequence[str], where: str) -> None:
    """DataError for a tag that continues or ends a span that has not begun."""
    before = ("", "")
    for number, tag in enumerate(tags, 1):
        prefix, kind = split_tag(tag)
        open_before = before[0] in ("B", "I") and before[1] == kind
        if prefix in ("I", "E", "L") and not open_before and tag != kind:
            raise DataError(
                f"{where}: got {tag} at word {number} without B-{kind} before it; must be tags in the scheme BIO; correct "
                "the row, or convert the file"
            )
        before = (prefix, kind)


def _encode(column: pa.ChunkedArray, labels: Sequence[str], where: Where, key: str) -> np.ndarray:
    numbers = {label: number for number, label in enumerate(labels)}
    targets = np.empty(len(column), object)
    for row, value in enumerate(column.to_pylist()):
        if value is None:
            targets[row] = None
            continue
        tags = [str(tag) for tag in value]
        if unknown := [tag for tag in tags if tag not in numbers]:
            raise DataError(
                f"{where(row)}: got tag {unknown[0]!r}; must be one of {', '.join(labels)}; correct the row, or list all "
                f"tags in {key.rpartition('.')[0]}.labels"
            )
        targets[row] = np.array([numbers[tag] for tag in tags], np.int64)
    return targets


def _rows(outputs: Any) -> Any:
    return outputs


def _decode(outputs: np.ndarray, threshold: float) -> np.ndarray:
    return outputs.argmax(axis=1)
