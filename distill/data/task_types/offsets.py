"""Places of spans in a text, as annotation tools count them: checked by the words that a span states, or by its edges.

Tools that run in a browser count UTF-16 units, in which an emoji is two, and some count bytes. Python counts
characters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from distill.data.task_types.task_type import Where, as_list
from distill.errors import DataError
from distill.runtime.quoting import short

STARTS = (
    "start", "start_offset", "begin", "start_char", "startOffset", "from", "char_start", "startPos", "BeginOffset",
)  # fmt: skip
ENDS = ("end", "end_offset", "end_char", "endOffset", "to", "char_end", "endPos", "EndOffset")
TYPES = ("label", "labels", "type", "entity", "tag", "entity_group", "category", "class", "Type")
TEXTS = ("text", "value", "surface_form", "mention", "quote", "Text")
"""Names of the first character, the end, the type and the words of a span, in the order in which they are tried. Tools
that write `labels` may write what they are beside it, such as `"type": "labels"`."""


UNITS: dict[str, Callable[[str], int]] = {
    "characters": lambda character: 1,
    "UTF-16 units": lambda character: 1 + (ord(character) > 0xFFFF),
    "bytes of UTF-8": lambda character: len(character.encode("utf-8", "surrogatepass")),
}
"""Unit that a tool may count -> function that counts the units of a character."""

Span = dict[str, Any]


def of_triple(value: Any) -> Span | None:
    """The span of a list as doccano and spaCy write it, `[0, 4, "PER"]`; None for any other value."""
    if not isinstance(value, list) or [*map(type, value)] != [int, int, str]:
        return None
    return dict(zip(("start", "end", "label"), value, strict=True))


def first_of(span: Span, names: Sequence[str]) -> Any:
    """The value with the first of these names that is not null."""
    return next((span[name] for name in names if span.get(name) is not None), None)


def plain(span: Span | None, where: str, text: str = "") -> Span:
    """`start`, `end`, `label` and, if it is stated, `text` of a span of a text.

    Raises:
        DataError: unless it has the first three.
    """
    given = span or {}
    start, end = (_whole(first_of(given, names)) for names in (STARTS, ENDS))
    named = {name: given.get(name) or None for name in TYPES}
    if start is not None and end is not None and sum(value is not None for value in named.values()) > 1:
        words = text[max(0, start) : max(0, end)]
        named = {name: None if value == words else value for name, value in named.items()}  # the words, not the type
    types = as_list(first_of(named, TYPES))
    if len(types) > 1:
        raise DataError(f"{where}: got a span with the labels {', '.join(map(str, types))}; must be one; remove others")
    label = types[0] if types else None
    if start is None or end is None or not isinstance(label, str):
        raise DataError(f"{where}: got span {span}; must have start, end and label; correct the row")
    stated = first_of(given, TEXTS)
    return {"start": start, "end": end, "label": label, "text": stated if isinstance(stated, str) else None}


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if float(value).is_integer() else None


def counted(
    texts: Sequence[str], marked: Sequence[list[Span] | None], edges: Callable[[str], tuple[set[int], set[int]]]
) -> list[str]:
    """The units in `UNITS` that the places of all spans may count.

    In such a unit, all spans have the words that they state, or begin and end with a word.

    Args:
        marked: the spans of each text, as from `plain`; None for a text without.
        edges: text -> characters at which a word begins, and at which one ends.
    """
    rows = [(text, spans) for text, spans in zip(texts, marked, strict=True) if spans]
    return [unit for unit in UNITS if all(_fit(text, spans, unit, edges) for text, spans in rows)]


def _fit(text: str, spans: list[Span], unit: str, edges: Callable[[str], tuple[set[int], set[int]]]) -> bool:
    places = characters(text, unit)
    starts, ends = edges(text)
    for span in spans:
        start, end = places.get(span["start"]), places.get(span["end"])
        if start is None or end is None or start >= end:
            return False
        if span["text"] is not None:
            if not same(text[start:end], span["text"]):
                return False
            continue
        start, end = trimmed(text, start, end)
        if start not in starts or end not in ends:
            return False
    return True


def characters(text: str, unit: str) -> dict[int, int]:
    """Number of units before a place in a text -> number of characters before it."""
    if unit == "characters" or text.isascii():
        return {number: number for number in range(len(text) + 1)}
    return {units: number for number, units in enumerate(accumulate(map(UNITS[unit], text), initial=0))}


def same(found: str, stated: str) -> bool:
    """Whether texts are equal but for white space."""
    return found.split() == stated.split()


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """The span without white space at its edges."""
    part = text[start:end]
    if not part.strip():
        return start, end
    return end - len(part.lstrip()), start + len(part.rstrip())


def moved(text: str, spans: list[Span], unit: str) -> list[Span]:
    """The spans by characters, without white space at their edges."""
    places, result = characters(text, unit), []
    for span in spans:
        start, end = (places[span[edge]] if span[edge] in places else span[edge] for edge in ("start", "end"))
        start, end = trimmed(text, start, end) if 0 <= start < end <= len(text) else (start, end)
        result.append({"start": start, "end": end, "label": span["label"]})
    return result


def check(texts: Sequence[str], marked: Sequence[list[Span] | None], where: Where) -> None:
    """Raise DataError for the first span whose words are not at its place."""
    for row, (text, spans) in enumerate(zip(texts, marked, strict=True)):
        for span in spans or ():
            found = text[span["start"] : span["end"]] if span["start"] >= 0 else ""
            if span["text"] is not None and not same(found, span["text"]):
                raise DataError(
                    f"{where(row)}: got a span with the text {short(span['text'])!r}, from {span['start']} to "
                    f"{span['end']}, where the row has {short(found)!r}; positions must count characters from 0, not "
                    "UTF-16 units or bytes, and the end is behind the last one; correct the row"
                )
