"""Which two columns of a file are a text pair, by their names, and which texts no task would use. Without torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from distill.data.task_types import TASK_TYPES
from distill.data.task_types.task_type import is_text

READING = ("question", "context")
"""Usual names of a question and of the context that contains its answer."""

PAIRS = (
    ("sentence1", "sentence2"), ("text1", "text2"), ("text_a", "text_b"), ("text", "text_pair"),
    ("premise", "hypothesis"), ("question1", "question2"), ("question", "sentence"), ("question", "passage"), READING,
    ("query", "document"), ("query", "passage"), ("query", "title"), ("claim", "evidence"),
    ("context", "hypothesis"),
)  # fmt: skip
"""Usual names of the two columns of a text pair."""

ANSWERED = ("question", "answer")
"""Usual names of a question and of a text that may answer it: a pair if the label says whether it does."""
VERDICTS = 3
"""Labels of such a pair, at most: of more, they are most likely classes of the question."""

QUERIED = ("text", "content", "doc", "answer")
"""Names of a text that make a pair with a query if the label is one of `RELEVANCE`."""
RELEVANCE = ("label", "labels", "relevance", "relevant", "score", "grade")

SEARCHED = (("query", "context"), ("query", "product_title"), ("search_term", "product_title"))
"""Usual names of the two columns of a text pair in a file that has none of `QUERIED` beside its query."""

TWINS = (("a", "b"), ("1", "2"), ("0", "1"), ("first", "second"), ("left", "right"), ("one", "two"))
"""Parts in which the names of two texts differ."""
THIRD = {"a": "c", "1": "3", "0": "2", "first": "third", "one": "three"}
"""The first of such parts -> that of a third column: three columns are no pair."""

LONG = 20
"""Characters of a text, in the mean: columns of shorter ones are seldom missed."""


def queried(text: Sequence[str], label: Sequence[str]) -> bool:
    """Whether the names are those of a query, of one of `QUERIED`, and of its relevance."""
    names = [name.lower() for name in (*text, *label)]
    return len(names) == 3 and names[0] == "query" and names[1] in QUERIED and names[2] in RELEVANCE


def pair_of(texts: pa.Table, labels: pa.Table, aside: Callable[[str], bool]) -> tuple[str, str] | None:
    """The columns of a text pair; None without such columns.

    Args:
        texts: columns of text without the label.
        labels: label columns; without any if they are unknown.
        aside: whether a column of this name is about the row.
    """
    judged = 0 < _different(labels) <= VERDICTS
    lower = {name.lower(): name for name in texts.column_names}
    if (pair := _named((*PAIRS, ANSWERED) if judged else PAIRS, lower)) is not None:
        return pair
    found = next((("query", name) for name in QUERIED if {"query", name} <= lower.keys()), None)
    if found is not None and queried(found, labels.column_names) and (judged or found[1] != ANSWERED[1]):
        if pc.count_distinct(texts[lower["query"]]).as_py() > 1:  # not one mark in each row
            return lower["query"], lower[found[1]]
    if found is None and (pair := _named(SEARCHED, lower)) is not None:
        return pair
    names = [name for name in texts.column_names if not aside(name)]
    parts = {name: _parts(name) for name in names}
    longest = max(names, key=lambda name: pc.sum(pc.utf8_length(texts[name])).as_py() or 0, default="")
    before = names[: names.index(longest)] if names else []
    around = [*((name, longest) for name in before), *((longest, name) for name in names[len(before) + 1 :])]
    return next((pair for pair in around if _are_twins(*pair, parts)), None)


def _named(pairs: Sequence[tuple[str, str]], lower: Mapping[str, str]) -> tuple[str, str] | None:
    """The first of the pairs that a table has. `lower`: name in small letters -> name of a column."""
    found = next((pair for pair in pairs if {*pair} <= lower.keys()), None)
    return None if found is None else (lower[found[0]], lower[found[1]])


def _different(labels: pa.Table) -> int:
    """Number of different labels; 0 without one column of single labels."""
    kind = labels.column(0).type if labels.num_columns == 1 else pa.null()
    single = not pa.types.is_null(kind) and TASK_TYPES["classification"].accepts(kind)
    return pc.count_distinct(labels.column(0)).as_py() if single else 0


def _are_twins(one: str, other: str, parts: dict[str, list[str]]) -> bool:
    """Whether two names, in their order in the file, differ as those of a first and a second text do, without a third
    one."""
    first, second = parts[one], parts[other]
    if [*first, "2"] == second:  # text, text2
        return [*first, "3"] not in parts.values()
    if len(first) != len(second):
        return False
    differing = [n for n, pair in enumerate(zip(first, second, strict=True)) if pair[0] != pair[1]]
    if len(differing) != 1 or (first[differing[0]], second[differing[0]]) not in TWINS:
        return False
    place, third = differing[0], THIRD.get(first[differing[0]])
    return third is None or [*first[:place], third, *first[place + 1 :]] not in parts.values()


def _parts(name: str) -> list[str]:
    """`sentence_A`, `sentenceA` and `sentence a` as sentence and a, `#1 String` as 1 and string."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_]+", name)
    found = [word.lower() for word in words]
    last = re.fullmatch(r"(sentence|sent|text|question|document|doc|string)([ab])", found[-1]) if found else None
    return found if last is None else [*found[:-1], *last.groups()]


def unused(table: pa.Table, used: Sequence[str], aside: Callable[[str], bool]) -> list[str]:
    """The columns of a table with texts that are long, mostly different and not used."""
    names = [n for n in table.column_names if n not in used and not aside(n) and is_text(table[n].type)]
    return [
        name
        for name in names
        if (pc.mean(pc.utf8_length(table[name])).as_py() or 0) >= LONG
        and 2 * pc.count_distinct(table[name]).as_py() > len(table[name])
    ]
