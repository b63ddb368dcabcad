"""The layout of a row: what a user passes for it, the columns that hold it, and the sequences that a model encodes.
Without torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distill.models.families.record import TEXTS

Parts = tuple[Any, ...]
"""The parts of a row: its texts, and last what `Layout.content` or `Layout.divide` adds to them."""

WORDS = "word_offsets"
"""Column with the first character and the end of each word of a text, flat, of tasks whose rows are words."""

SECONDS = "second_texts"
"""Column with a list of texts for each row, of tasks whose rows are one text with each of several others."""


def _texts(given: Any) -> Parts:
    return (given,) if isinstance(given, str) else tuple(given)


def _together(parts: Parts) -> list[Parts]:
    return [parts]


def _as_they_are(*columns: Sequence[Any]) -> list[Parts]:
    return list(zip(*columns, strict=True))


def _by_name(names: Sequence[str], rows: Sequence[Parts]) -> dict[str, list[Any]]:
    return {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def _unchanged(text: str, own: Sequence[Parts]) -> Any:
    return text


@dataclass(frozen=True)
class Making:
    """How rows without labels are made. The parts of such a row are texts, or tuples of texts: all words of a text, or
    the choices of a question, which come last."""

    sources: tuple[str, ...]
    """The sources of `config.TRANSFER_SOURCES` that make rows of this layout."""
    read: Callable[..., list[Parts]] = _as_they_are
    """(each text column and each column of `Layout.hidden`) -> the parts of each row."""
    columns: Callable[[Sequence[str], Sequence[Parts]], dict[str, list[Any]]] = _by_name
    """(names of text columns, rows) -> the text columns, those of `Layout.hidden`, and `label` where the targets of a
    row without a label have a length of their own. Inverse of `read`."""
    part: Callable[[str, Sequence[Parts]], Any] = _unchanged
    """(a text, rows of the task) -> the text in the form of the parts of these rows."""
    spans: Callable[[Sequence[Parts], np.ndarray, Sequence[str]], list[list[tuple[int, int, int]]]] | None = None
    """(rows, targets, labels) -> start, end and type of the spans in the first part of each row. None without spans."""
    any_texts: bool = False
    """Whether any two texts are a useful row, so that the texts of all other tasks, and of files with one column, are
    paired."""

    def least_columns(self, columns: int) -> int:
        """Number of the task's text columns that a file of rows must have. `columns`: how many the task has."""
        return 1 if self.any_texts else columns


@dataclass(frozen=True)
class Layout:
    """The layout of the rows of a kind of task. By default a row is one text or a pair of texts, in one sequence."""

    architecture: str = TEXTS
    """The class of transformers without the name of the family: a key of `distill.models.families.head.HEADS`."""
    columns: tuple[int, ...] = (1, 2)
    """The numbers of text columns that a file may have."""
    asked: int = 0
    """Number of texts that a user passes to `Model.predict` for a row; 0 for as many as there are columns."""
    hidden: tuple[str, ...] = ()
    """Columns that `TaskType.prepare` adds."""
    content: tuple[str, ...] = ()
    """The `hidden` columns that are equal for equal rows."""
    divide: Callable[[Any], Parts] = _texts
    """What a user passes to `Model.predict` for a row -> its parts."""
    sequences: Callable[[Parts], list[Parts]] = _together
    """Parts of a row, also from the text columns and `content` -> the texts of each sequence, one or two."""
    several: str = ""
    """What the sequences of a row are, in the plural; empty if a row is one sequence."""
    width: int | None = 1
    """Number of outputs of `Model.outputs` for a sequence, if they have no names; None where models differ in it."""
    making: Making | None = None
    """How rows without labels are made; None if none are."""
    sample: Any = None
    """What a user may pass for a row; None for one text, or as many as there are columns."""

    def makes(self, source: str) -> bool:
        """Whether a source of `config.TRANSFER_SOURCES` makes rows of this layout."""
        return self.making is not None and source in self.making.sources


TEXTS_OR_PAIRS = Layout(making=Making(("files", "tasks", "corpus", "pairs", "edits")))
