"""Spans of words with labels: from tags in one of the usual schemes, and how many of them two taggings share.

A tag is `O` (outside), or a prefix and a type: `B-` begins a span, `I-` continues it, `E-` ends it, `S-` is a span of
one word. Tags without prefixes are types: neighbours of one type form a span. As in seqeval's default mode, a span also
begins where the type changes. Where all tags of a file fit, the letter may also stand behind the type (`PER-B`), or be
divided from it by another character (`B_PER`). Where all tags are such letters alone, as in many files with spans of a
single type, they are prefixes of this type.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

TAGGED = np.dtype([("label", np.int64), ("group", np.int64)])
"""A word as metrics take it: the code of its tag, and the number of its text."""

OUTSIDE = "O"
CODES = {"B": 0, "I": 1, "M": 1, "E": 2, "L": 2, "S": 3, "U": 3, "W": 3}
"""Prefix -> its number; `BILOU` writes L for E and U for S, and `BMES` M for I."""


@dataclass(frozen=True)
class Scheme:
    """How a tag is made of a prefix and a type."""

    pattern: re.Pattern[str]
    form: str
    lower: bool = False
    """Whether the letters are small, and so is that of `O`."""

    def part(self, tag: str) -> tuple[str, str]:
        """(prefix, type) of a tag; ("", "") outside of spans."""
        if tag == OUTSIDE:
            return "", ""
        match = self.pattern.fullmatch(tag)
        return (match["prefix"].upper(), match["type"] or NAMELESS) if match else ("I", tag)

    def tag(self, prefix: str, kind: str) -> str:
        return self.form.format(prefix=prefix.lower() if self.lower else prefix, type=kind)


NAMELESS = "_"
"""The type of tags that are prefixes alone: the name that seqeval gives it."""
PREFIXES = Scheme(re.compile(r"(?P<prefix>[BIESLU])-(?P<type>.+)"), "{prefix}-{type}")
OTHERS = (
    Scheme(re.compile(r"(?P<prefix>[BIMESW])-(?P<type>.+)"), "{prefix}-{type}"),
    *(
        Scheme(re.compile(rf"(?P<type>.+){re.escape(m)}(?P<prefix>[BIMESLUW])"), f"{{type}}{m}{{prefix}}")
        for m in "-_.:/|"
    ),
    *(
        Scheme(re.compile(rf"(?P<prefix>[BIMESLUW]){re.escape(m)}(?P<type>.+)"), f"{{prefix}}{m}{{type}}")
        for m in "_.:/| \u2013\u2014"
    ),
    Scheme(re.compile(r"(?P<type>.+)\((?P<prefix>[BIMESLUW])\)"), "{type}({prefix})"),
    Scheme(re.compile("(?P<prefix>[BIMESLUW])(?P<type>)"), "{prefix}"),
    Scheme(re.compile("(?P<prefix>[bimesluw])-(?P<type>.+)"), "{prefix}-{type}", lower=True),
)
"""Schemes that tags are in only if all of them fit, some of them begin a span, and others continue it or are of another
type."""


def scheme_of(labels: Sequence[str]) -> Scheme:
    """The scheme of tags."""
    tags = {*labels} - {OUTSIDE}
    if all(PREFIXES.pattern.fullmatch(tag) for tag in tags):
        return PREFIXES
    return next((scheme for scheme in OTHERS if _fits(scheme, tags)), PREFIXES)


_PARTS = (
    re.compile(r"(?P<prefix>[A-Za-z]+)\d*[\W_](?P<type>.+)"),
    re.compile(r"(?P<type>.+)[\W_](?P<prefix>[A-Za-z]+)"),
)
_ENDING = re.compile(r"</.+>")
_ALIKE = str.maketrans("\u0412\u041e\u0415\u0406\u0405\u041c", "BOEISM")
"""Cyrillic letters that look as Latin ones."""
_PREFIX_WORDS = frozenset(
    "b i e s l u m w begin beginning start inside in intermediate middle end last single unit continue".split()
)


def half_read(labels: Sequence[str]) -> list[str]:
    """The tags that would be read as entity types by mistake: tags without a prefix beside tags with one, and tags of a
    scheme that is not supported. Empty if there are none."""
    tags = sorted({*labels} - {OUTSIDE})
    scheme = scheme_of(tags)
    without = [tag for tag in tags if not scheme.pattern.fullmatch(tag)]
    types = [scheme.part(tag)[1] for tag in tags if tag not in without]
    if without and (len(without) < len(types) or len({*types}) < len(types)):  # a type has several prefixes
        return without
    if wrong := [tag for tag in tags if _ENDING.fullmatch(tag) or tag.translate(_ALIKE) in _latin(tag)]:
        return wrong
    if wrong := [tag for tag in tags if scheme.pattern.fullmatch(tag) and scheme.part(tag)[1] == OUTSIDE]:
        return wrong
    for parts in _PARTS:
        found = [parts.fullmatch(tag) for tag in tags]
        words = {match["prefix"].lower() for match in found if match is not None}
        if without and all(found) and 1 < len(words) and words <= _PREFIX_WORDS:
            return tags
    return []


def _latin(tag: str) -> set[str]:
    """`O` or a tag with a prefix, in Latin letters, if it looks as this tag and is another one."""
    latin = tag.translate(_ALIKE)
    return {latin} if latin != tag and (latin == OUTSIDE or PREFIXES.pattern.fullmatch(latin)) else set()


def _fits(scheme: Scheme, tags: set[str]) -> bool:
    matches = [scheme.pattern.fullmatch(tag) for tag in tags]
    found = {(match["prefix"].upper(), match["type"]) for match in matches if match is not None}
    return len(found) == len(tags) > 1 and not {prefix for prefix, _ in found}.isdisjoint("BSUW")


def parted(labels: Sequence[str]) -> list[tuple[str, str]]:
    """(prefix, type) of each tag; ("", "") outside of spans."""
    scheme = scheme_of(labels)
    return [scheme.part(label) for label in labels]


def types_of(labels: Sequence[str]) -> list[str]:
    """Types of all tags, in order."""
    return list(dict.fromkeys(kind for _, kind in parted(labels) if kind))


def codes(labels: Sequence[str]) -> np.ndarray:
    """[labels] code of each tag: -1 outside, else 4 x type + prefix."""
    types = types_of(labels)
    pairs = parted(labels)
    return np.array([4 * types.index(kind) + CODES[prefix] if kind else -1 for prefix, kind in pairs], np.int64)


def continues(numbers: np.ndarray, labels: Sequence[str]) -> np.ndarray:
    """[words] whether the word after each word continues its span, of tags [words] by their number in `labels`; words
    without a tag have a negative number."""
    tags = np.where(numbers < 0, -1, codes(labels)[np.maximum(numbers, 0)])
    after = np.r_[tags[1:], np.full(min(1, len(tags)), -1)]
    inside = (tags >= 0) & (after >= 0) & (tags // 4 == after // 4)
    return inside & np.isin(after % 4, (CODES["I"], CODES["E"]))


def spans(tags: np.ndarray, group: np.ndarray) -> np.ndarray:
    """[S, 3] first word, last word and type of each span, of codes [words] whose texts are numbered by `group`.

    Words are numbered over all texts.
    """
    kind, prefix = np.where(tags < 0, -1, tags // 4), np.where(tags < 0, -1, tags % 4)
    before, after = np.r_[-1, kind[:-1]], np.r_[kind[1:], -1]
    new_text, last_of_text = np.r_[True, group[1:] != group[:-1]], np.r_[group[1:] != group[:-1], True]
    closed = np.isin(np.r_[-1, prefix[:-1]], (CODES["E"], CODES["S"]))
    opens = np.isin(np.r_[prefix[1:], -1], (CODES["B"], CODES["S"]))
    inside = kind >= 0
    starts = inside & (new_text | (before != kind) | closed | np.isin(prefix, (CODES["B"], CODES["S"])))
    ends = inside & (last_of_text | (after != kind) | opens | np.isin(prefix, (CODES["E"], CODES["S"])))
    return np.stack([np.flatnonzero(starts), np.flatnonzero(ends), kind[starts]], axis=1)


def matched(predicted: np.ndarray, truth: np.ndarray, group: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[S, 3] each: the spans in both, in the prediction, in the truth, of codes [words]. Columns are as in `spans`.

    group: [words] number of each word's text.
    """
    ours, theirs = spans(predicted, group), spans(truth, group)
    # No two spans of a tagging share their first word.
    at = np.full((len(truth), 2), -1)
    at[theirs[:, 0]] = theirs[:, 1:]
    return ours[(at[ours[:, 0]] == ours[:, 1:]).all(axis=1)], ours, theirs


def counts(
    predicted: np.ndarray, truth: np.ndarray, group: np.ndarray, types: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[types] each: spans in both, in the prediction, in the truth, of codes [words].

    group: [words] number of each word's text. types: minimum number of types.
    """
    found = matched(predicted, truth, group)
    size = max(types, *(1 + int(part[:, 2].max(initial=-1)) for part in found))
    shared, ours, theirs = (np.bincount(part[:, 2], minlength=size) for part in found)
    return shared, ours, theirs
