"""Rows that have several documents of one query, as sentence-transformers trains on them. Without torch."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from distill.data.task_types.task_type import is_text
from distill.errors import DataError

_ASKED = ("query", "anchor", "question")
"""Usual names of the text for which two others are compared."""
_COMPARED = ("positive", "negative")
"""Usual names of a text that fits and of one that does not, or how they begin."""


def check_lists(names: Sequence[str], label: str, table: pa.Table, file: str) -> None:
    """Raise DataError where columns of lists have whole texts, each with a label of its own, and not words.

    Args:
        names: columns with lists of texts.
        label: column with as many labels in its lists.
    """
    for name in names:
        spaced = pc.match_substring_regex(pc.list_flatten(table[name]), r"\S\s+\S")
        if (pc.mean(spaced).as_py() or 0) > 0.5:
            raise DataError(
                f"{file}: got lists of texts in {name} with as many labels in {label}; must be a row for each text and "
                "its label, or lists of words; write a row for each"
            )


def check_triplets(table: pa.Table, label: Sequence[str], file: str) -> None:
    """Raise DataError where rows have a label beside a text and two others, of which one fits it better."""
    texts = [name for name in table.column_names if name not in label and is_text(table[name].type)]
    lower = {name.lower(): name for name in texts if label}
    asked = next((lower[name] for name in _ASKED if name in lower), None)
    if asked is not None and {*_COMPARED} <= lower.keys():
        positive, negative = (lower[name] for name in _COMPARED)
        raise DataError(
            f"{file}: got {asked}, {positive} and {negative} with a label in {', '.join(label)}; must be a row for "
            f"each document: query, document and its score; write a row for {positive} and one for {negative}, or name "
            "the columns of texts with tasks.text and tasks.text_pair"
        )
