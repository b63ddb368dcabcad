"""Whether tags of words with beginnings, such as `B-PER`, begin each span that others continue. Without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from distill.data.task_types.spans import CODES, codes, parted, scheme_of
from distill.data.task_types.task_type import Where
from distill.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

UNTAGGED = "-100"
"""In place of the tag of a word that has none: the number that PyTorch's losses ignore."""

BEGINNING = ("B", "S", "U", "W")

UNBEGUN = 0.05
"""Spans that have no beginning, for each that has one: up to this share they are mistakes of annotators, as many public
files have, and are read as seqeval and conlleval do. With more, the words and tags may be of different texts."""


@dataclass(frozen=True)
class _Order:
    """What is found in tags."""

    wrong: np.ndarray
    """Numbers of the words whose tag continues or ends a span that has not begun."""
    begun: int
    """Number of the words whose tag begins a span."""
    first: bool
    """Whether the tags are in the scheme IOB1, in which `B` only divides two spans of a type that are neighbours."""


def check_tags(tags: pa.DictionaryArray, group: np.ndarray, label: str, where: Where) -> None:
    """Raise DataError for a word without a tag in a text with tags, and for more than a few spans without a beginning
    in tags with beginnings. `group`: row of each word."""
    if tags.null_count:
        row = int(group[np.flatnonzero(np.asarray(tags.is_null()))[0]])
        raise DataError(
            f"{where(row)}: got null or {UNTAGGED} among the tags in {label}; must be a tag for each word, or null in "
            "place of the whole list; correct the row"
        )
    names, numbers = tags.dictionary.to_pylist(), np.asarray(tags.indices)
    found = _order(names, numbers, group)
    if len(found.wrong) > UNBEGUN * found.begun and not found.first:
        at, row, word = _place(found.wrong, group)
        begun = scheme_of(names).tag("B", parted(names)[numbers[at]][1])
        others = f", and so {len(found.wrong) - 1:,} more" if len(found.wrong) > 1 else ""
        raise DataError(
            f"{where(row)}: got {names[numbers[at]]} at word {word} in {label} without {begun} before it{others}; must "
            "be tags in the scheme BIO, with at most a few such mistakes; correct the row, or convert the file"
        )


def unbegun(
    names: Sequence[str], numbers: np.ndarray, group: np.ndarray, label: str, split: str
) -> tuple[list[str], bool]:
    """(what is to be said about spans without a beginning; whether the tags are in the scheme IOB1).

    Args:
        numbers: [words] number of each tag in `names`.
        group: [words] row of each word.
    """
    found = _order(names, numbers, group)
    if found.first:
        return [f"the tags in {label} are in the scheme IOB1, in which I also begins a span"], True
    if not len(found.wrong):
        return [], False
    at, row, word = _place(found.wrong, group)
    count = len(found.wrong)
    begin = f"{count:,} tags in {label} continue spans" if count > 1 else f"a tag in {label} continues a span"
    return [
        f"{split}: {begin} without a beginning, e.g. {names[numbers[at]]} at word {word} of text {row + 1}; a span "
        "begins there, as in seqeval"
    ], False


def _place(wrong: np.ndarray, group: np.ndarray) -> tuple[int, int, int]:
    """(number, row, and number from 1 in its row) of the first word."""
    at = int(wrong[0])
    row = int(group[at])
    return at, row, at - int(np.argmax(group == row)) + 1


def _order(names: Sequence[str], numbers: np.ndarray, group: np.ndarray) -> _Order:
    pairs = parted(names)
    beginning = [prefix in BEGINNING and name != kind for name, (prefix, kind) in zip(names, pairs, strict=True)]
    if not any(beginning) or not len(numbers):
        return _Order(np.zeros(0, np.int64), 0, False)
    prefixed = np.array([prefix != "" and name != kind for name, (prefix, kind) in zip(names, pairs, strict=True)])
    code, explicit = codes(names)[numbers], prefixed[numbers]
    same_text = np.r_[False, group[1:] == group[:-1]]
    before = np.where(same_text, np.r_[-1, code[:-1]], -1)
    of_type = (before >= 0) & (before // 4 == code // 4)
    is_open = of_type & np.isin(before % 4, (CODES["B"], CODES["I"]))
    wrong = np.flatnonzero(explicit & np.isin(code % 4, (CODES["I"], CODES["E"])) & (code >= 0) & ~is_open)
    begins = np.array(beginning)[numbers]
    only_b = {prefix for prefix, _ in pairs} <= {"", "B", "I"}
    return _Order(wrong, int(begins.sum()), only_b and bool(begins.any() and of_type[begins].all()))
