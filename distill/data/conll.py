"""Texts with a tag for each word from files with one word a line, as CoNLL's, where an empty line ends a text.

The last column has the tags, unless a header names another, or it has none and only one other has. The first one has
the words, or the second one if the first numbers them, as GermEval's, whose last two columns have the tags of spans and
of the spans inside them.
Tags in the scheme IOB1, where a span begins with `B-` only next to one of its type, become IOB2's.
"""

from __future__ import annotations

import io
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import pyarrow as pa

from distill.data.about import About, with_about
from distill.data.lines import Malformed, chunks, lines, no_rows
from distill.errors import DataError

SAMPLE = 1000
"""Lines by which the columns are found."""
LONGEST = 1_000_000
"""Characters of a text: a longer one most likely lacks empty lines."""
TREEBANK = 8
"""With as many columns and numbered words, a file has CoNLL-U's parses and no tags of spans."""
HEADS = ("ner", "ner_tag", "ner_tags", "entity", "entities", "label", "labels", "tag", "tags", "pos", "pos_tag")
"""Names of a column of tags, where the first line is a header. Of several, the first one of these counts."""
_TAG = re.compile(r"O|[BIESLU]-\S+|\S+-[BIESLU]")
_LETTERS = frozenset("OBIESLUMW")
"""Tags of spans that have one type, and no name for it."""
PHRASES = frozenset("NP VP PP ADVP ADJP SBAR PRT CONJP INTJ LST UCP NC VC PC".split())
"""Types of chunks, whose column stands before the column of names."""
_NUMBERS = re.compile(r"\d+([-.:]\d+)?")
"""The number of a word or a text, as `7`, `1-2` of a treebank and `3-7` of WebAnno."""
_DOCUMENT = "-DOCSTART-"
_SPACE = " \t\r\n\ufeff"


@dataclass(frozen=True)
class _Layout:
    """Where the words and the tags are."""

    tabs: bool
    width: int
    numbered: bool
    tags: tuple[int, ...]
    """The column of the tags, and the column of the tags of spans inside of spans."""
    schemed: bool
    """Whether all tags of the sample have one of the usual schemes."""
    header: bool

    @property
    def columns(self) -> dict[str, int]:
        """Name in the table -> column."""
        word, named = int(self.numbered), dict(zip(self.tags, ("ner_tags", "inner_tags"), strict=False))
        others = range(word + 1, self.width)
        return {"tokens": word} | {named.get(number, f"column_{number + 1}"): number for number in others}

    def split(self, line: str) -> list[str]:
        return _split(line, self.tabs)


def _split(line: str, tabs: bool) -> list[str]:
    """The values of a line between tabs, or between any spaces."""
    if tabs:
        return [value.strip(" ") for value in line.lstrip("\ufeff").rstrip(_SPACE).split("\t")]
    return re.split(r"[ \t]+", line.strip(_SPACE))


@dataclass
class _Tags:
    """Facts about a column of tags that are known after all texts."""

    inside: bool = False
    """Whether a tag `I-` begins a span."""
    beside: bool = False
    """Whether a tag `B-` begins a span next to one of its type."""
    alone: bool = False
    """Whether a tag `B-` begins another span."""

    @property
    def first_scheme(self) -> bool:
        return self.inside and self.beside and not self.alone

    def add(self, tags: Sequence[str]) -> None:
        before = "O"
        for tag in tags:
            same = before[2:] == tag[2:] and before[:2] in ("B-", "I-")
            if tag.startswith("I-"):
                self.inside |= not same
            elif tag.startswith("B-"):
                self.beside |= same
                self.alone |= not same
            before = tag


@dataclass
class _Scan:
    """The result of a first reading of all lines."""

    starts: array[int] = field(default_factory=lambda: array("q"))
    words: int = 0
    tags: dict[str, _Tags] = field(default_factory=dict)


@dataclass(frozen=True)
class _Text:
    line: int
    """The line of its first word."""
    rows: list[list[str]]


def is_conll(text: io.TextIOWrapper) -> bool:
    """Whether a file, whose extension does not state it, has one word and its tag a line beyond doubt."""
    try:
        sample = _sample(text)
    except Malformed:
        return False
    try:
        layout = _layout(sample)
    except Malformed:  # which `batches` raises again, with the name of the file
        return True
    if layout is None or not layout.schemed:
        return False
    return not layout.header or any(not line.strip(_SPACE) for line in sample[1:-1])


def batches(text: io.TextIOWrapper, name: str, *, said: bool) -> Iterator[pa.RecordBatch]:
    """The texts in batches of one schema: `tokens`, `ner_tags`, and lists for the columns between them.

    `said`: note that the file has one word a line.

    Raises:
        DataError: for a line with another number of columns.
    """
    try:
        sample = _sample(text)
        layout = _layout(sample)
        if layout is not None:
            _check_layout(sample, layout)
    except Malformed as error:
        raise DataError(f"{name}: {error}") from error
    if layout is None:
        raise DataError(
            f"{name}: got no lines of words with tags; must have a word and its tag on each line, and an empty line "
            "after each text; correct the file, or its extension"
        )
    text.seek(0)
    scan = _scanned(text, name, layout)
    if not scan.starts:
        raise no_rows(name)
    text.seek(0)
    converted = {column for column, tags in scan.tags.items() if tags.first_scheme}
    fields = [(column, pa.list_(pa.string())) for column in layout.columns]
    about = About(_notes(layout, scan, converted, said), scan.starts)
    schema = with_about(pa.schema(fields), about)
    for part in chunks(_texts(text, name, layout), lambda each: sum(len(word) for row in each.rows for word in row)):
        lists = {column: [[row[n] for row in each.rows] for each in part] for column, n in layout.columns.items()}
        lists |= {column: [_second(tags) for tags in lists[column]] for column in converted}
        arrays = [pa.array(lists[column], pa.list_(pa.string())) for column in layout.columns]
        yield pa.record_batch(arrays, schema=schema)


def _sample(text: io.TextIOWrapper) -> list[str]:
    return next(chunks(islice(lines(text), SAMPLE), len), [])


def _layout(sample: Sequence[str]) -> _Layout | None:
    """The layout by the first lines; None where they have fewer than two columns."""
    filled = [line for line in sample if line.strip(_SPACE)]
    plain = [line for line in filled if not line.startswith("#") and not _divides(line)]
    if not plain:
        return None
    tabs = 2 * sum("\t" in line.strip(_SPACE) for line in plain) >= len(plain)
    every = [_split(line, tabs) for line in plain]
    ((width, _),) = Counter(map(len, every)).most_common(1)
    if width < 2:
        return None
    rows = [row for row in every if len(row) == width]
    head = _head(rows) if len(every[0]) == width else None
    header = head is not None
    rows = rows[header:]
    numbered = _numbered([line for line in sample if not (header and line == plain[0])], tabs, width)
    places = (head,) if head is not None else _tagged(rows, width, numbered)
    schemed = bool(rows) and len(rows) == len(plain) - header and _are_tags(rows, places[0])
    schemed = schemed and (any(row[places[0]] != "O" for row in rows) or len(filled) < len(sample))
    return _Layout(tabs, width, numbered, places, schemed, header)


def _divides(line: str) -> bool:
    """Whether a line ends the text before it."""
    return not line.strip(_SPACE) or line.lstrip("\ufeff").startswith(_DOCUMENT)


def _are_tags(rows: Sequence[Sequence[str]], column: int) -> bool:
    if all(_TAG.fullmatch(row[column]) for row in rows):
        return True
    # Letters may be classes of texts, which have spaces.
    letters = {row[column] for row in rows}
    return {"O", "B"} <= letters <= _LETTERS and not any(" " in row[0] for row in rows)


def _head(rows: Sequence[Sequence[str]]) -> int | None:
    """The column of the tags by the names in the first row; None if it has no names.

    A row of names has no tag, and neither that column nor the last one has its name again: a word and its lemma may be
    `label` too.
    """
    first = [value.lower() for value in rows[0]]
    head = next((first.index(name, 1) for name in HEADS if name in first[1:]), None)
    if head is None or any(map(_TAG.fullmatch, rows[0])):
        return None
    again = any(row[n].lower() == first[n] for row in rows[1:] for n in (head, -1))
    return None if again else head


def _tagged(rows: Sequence[Sequence[str]], width: int, numbered: bool) -> tuple[int, ...]:
    """The columns of the tags. Raises Malformed where the last column has no tags, and several others have tags."""
    last = width - 1
    values = [{row[column] for row in rows} for column in range(width)]
    if numbered and width == 4:
        return (2, 3) if "O" in values[2] and not _are_phrases(values[2]) else (3,)
    if any(map(_TAG.fullmatch, values[last])):
        return (last,)
    others = [n for n in range(1 + numbered, last) if _are_tags(rows, n) and not _are_phrases(values[n])]
    if len(others) > 1:
        raise Malformed(
            f"got tags in the columns {' and '.join(str(column + 1) for column in others)}, and none in the last one; "
            "must have tags in one column, the last; remove the other columns"
        )
    return (others[0] if others else last,)


def _are_phrases(tags: set[str]) -> bool:
    """Whether all tags are tags of chunks."""
    return {tag.partition("-")[2] for tag in tags - {"O"}} <= PHRASES


def _check_layout(sample: Sequence[str], layout: _Layout) -> None:
    """Raise Malformed where the first column has no words: numbers of texts, or tags."""
    rows = [layout.split(line) for line in sample if not _divides(line) and not line.startswith("#")]
    rows = [row for row in rows if len(row) == layout.width][layout.header :]
    first, last = [row[0] for row in rows], [row[-1] for row in rows]
    if len(rows) < 2 or layout.numbered:
        return
    if layout.width > 2 and all(map(_NUMBERS.fullmatch, first)):
        raise Malformed(
            "got numbers alone in column 1, which do not count the words of each text from 1; must be words; remove "
            "the column if it numbers the words or the texts"
        )
    if all(map(_TAG.fullmatch, first)) and {*first} != {"O"} and not all(map(_TAG.fullmatch, last)):
        raise Malformed("got tags in column 1, before the words; must be words first; exchange the columns")


def _numbered(sample: Sequence[str], tabs: bool, width: int) -> bool:
    """Whether the first column counts the words of each text."""
    expected, counted = 1, 0
    for line in sample:
        values = _split(line, tabs)
        if _divides(line) or len(values) != width or line.startswith("#"):
            expected = 1
        elif re.fullmatch(r"\d+[-.]\d+", values[0]):
            continue
        elif values[0] == str(expected):
            expected += 1
            counted += 1
        else:
            return False
    return width > 2 and counted > 1


def _texts(text: io.TextIOWrapper, name: str, layout: _Layout) -> Iterator[_Text]:
    """The texts of a file. DataError names the text and the line."""
    rows, begin, number, characters, count = list[list[str]](), 0, 0, 0, 1
    header = layout.header
    try:
        for number, line in enumerate(lines(text), 1):
            if _divides(line):
                if rows:
                    yield _Text(begin, rows)
                    rows, characters, count = [], 0, count + 1
                continue
            values = layout.split(line)
            if header or (not rows and _is_comment(values, layout)):
                header = False
                continue
            _check(values, layout)
            begin = begin if rows else number
            rows.append(values)
            characters += len(line)
            if characters > LONGEST:
                raise Malformed(
                    f"got a text of more than {LONGEST:,} characters; must be shorter; end each text with an empty line"
                )
    except Malformed as error:
        raise DataError(f"{name}, line {max(number, 1)} (text {count}): {error}") from error
    if rows:
        yield _Text(begin, rows)


def _is_comment(values: Sequence[str], layout: _Layout) -> bool:
    """Whether a line before a text is a comment. `#` is a word too, with a tag as others have it."""
    if not values[0].startswith("#"):
        return False
    if len(values) != layout.width:
        return True
    tag = values[layout.tags[0]]
    return layout.schemed and tag not in _LETTERS and not _TAG.fullmatch(tag)


def _check(values: Sequence[str], layout: _Layout) -> None:
    if layout.numbered and layout.width >= TREEBANK:
        raise Malformed(
            f"got {layout.width} columns with numbered words, as in a treebank (CoNLL-U); must be a word and its tag "
            "on each line; write these two columns"
        )
    if len(values) != layout.width:
        raise Malformed(
            f"got {len(values)} columns; must be {layout.width}, as in other lines; correct the line, or put an empty "
            "line between texts"
        )
    if not all(values):
        raise Malformed("got a column without a value; must be a word and its tag; correct the line")
    if layout.numbered and not values[0].isdecimal():
        raise Malformed(
            f"got {values[0][:40]!r} as the number of a word, which treebanks use for a group of words, or for one that"
            " is left out; must be 1, 2, 3 and so on; remove the line"
        )
    tag = values[layout.tags[0]]
    if re.search(r"^\(|\*", tag) and len(tag) > 1:
        raise Malformed(
            f"got tag {tag[:40]!r}; must be O, or a type with B- or I- before it; convert tags in brackets to "
            "this scheme"
        )


def _scanned(text: io.TextIOWrapper, name: str, layout: _Layout) -> _Scan:
    tagged = {column: n for column, n in layout.columns.items() if column.endswith("_tags")}
    scan = _Scan(tags={column: _Tags() for column in tagged})
    for each in _texts(text, name, layout):
        scan.starts.append(each.line)
        scan.words += len(each.rows)
        for column, number in tagged.items():
            scan.tags[column].add([row[number] for row in each.rows])
    return scan


def _second(tags: Sequence[str]) -> list[str]:
    """Tags of IOB1, converted to IOB2, where each span begins with `B-`."""
    return [
        f"B-{tag[2:]}" if tag.startswith("I-") and not (before[:2] in ("B-", "I-") and before[2:] == tag[2:]) else tag
        for before, tag in zip(("O", *tags), tags, strict=False)
    ]


def _notes(layout: _Layout, scan: _Scan, converted: set[str], said: bool) -> tuple[str, ...]:
    places = ", ".join(f"{name} from column {number + 1}" for name, number in layout.columns.items())
    form = "it has one word a line: " if said else ""
    notes = [f"{form}{len(scan.starts):,} texts of {scan.words:,} words, {places}"]
    if len(layout.tags) == 1 and layout.tags[0] != layout.width - 1 and not layout.header:
        notes.append(
            f"the tags are from column {layout.tags[0] + 1}, because those in the last column have no prefix such as B-"
        )
    if layout.header:
        notes.append("its first line names the columns, and is no word")
    if converted:
        notes.append("its tags are in the scheme IOB1, and are converted to IOB2, where each span begins with B-")
    return tuple(notes)
