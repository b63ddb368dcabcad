"""Rows in words without tags: from texts, and back to columns. Without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distill.data.task_types.layout import WORDS, Making, Parts
from distill.data.task_types.spans import codes, spans
from distill.data.task_types.task_type import MISSING, flat
from distill.data.task_types.words import divide, words_of


def read(texts: Sequence[str], offsets: Sequence[Sequence[int]]) -> list[Parts]:
    """The words of each row, if its file divides texts into other words than `words_of`; else its text.

    offsets: first character and end of each word of each text, flat.
    """
    places = [list(zip(row[::2], row[1::2], strict=True)) for row in offsets]
    if all(row == words_of(text) for text, row in zip(texts, places, strict=True)):
        return [(text,) for text in texts]
    return [(tuple(text[a:b] for a, b in row),) for text, row in zip(texts, places, strict=True)]


def columns(names: Sequence[str], rows: Sequence[Parts]) -> dict[str, list[Any]]:
    """Texts, places of words, and a missing tag for each word, of rows as from `read`."""
    divided = [divide(row[0]) for row in rows]
    return {
        names[0]: [text for text, _ in divided],
        WORDS: [[place for word in places for place in word] for _, places in divided],
        "label": [[MISSING] * len(places) for _, places in divided],
    }


def part(text: str, own: Sequence[Parts]) -> Any:
    """The words of a text if the rows of the task are in words, else the text."""
    in_words = bool(own) and isinstance(own[0][0], tuple)
    return tuple(text[first:end] for first, end in words_of(text)) if in_words else text


def tagged(rows: Sequence[Parts], targets: np.ndarray, labels: Sequence[str]) -> list[list[tuple[int, int, int]]]:
    """Start, end and type of the spans of each row: in words of rows in words, else in characters.

    targets: [rows] arrays of the numbers of the words' tags.
    """
    sizes, numbers = [len(row) for row in targets], flat(targets)
    group, starts = np.repeat(np.arange(len(rows)), sizes), np.cumsum([0, *sizes])
    tags = np.where(numbers == MISSING, -1, codes(labels)[np.maximum(numbers, 0)])
    found: list[list[tuple[int, int, int]]] = [[] for _ in rows]
    for first, last, kind in spans(tags, group).tolist():
        row = int(group[first])
        (text,), start, end = rows[row], int(first - starts[row]), int(last - starts[row])
        places = words_of(text) if isinstance(text, str) else [(number, number + 1) for number in range(sizes[row])]
        found[row].append((places[start][0], places[end][1], kind))
    return found


MAKING = Making(("files", "tasks", "corpus", "spans", "edits"), read, columns, part, tagged)
