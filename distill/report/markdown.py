"""Blocks as Markdown that is readable as plain text too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import assert_never

from distill.errors import visible
from distill.report.page import Banner, Block, Bullets, Code, Heading, Headline, Paragraph, Picture
from distill.report.table import Table


def text(blocks: Sequence[Block]) -> str:
    """A page, or a part of a page; ends with a newline."""
    return "\n\n".join(part for part in map(_block, blocks) if part) + "\n"


def _block(block: Block) -> str:
    match block:
        case Heading():
            return f"{'#' * block.level} {line(block.text)}"
        case Banner():
            return f"> {_strong(block.text)}"
        case Headline():
            return _strong(block.text)
        case Paragraph():
            return line(block.text)
        case Code():
            return _code(block.text)
        case Bullets():
            return _bullets(block.lines)
        case Picture():
            return f"![{_without_marks(block.text)}]({block.file})"  # a comment would be a part of it
        case Table():
            return "\n\n".join(part for part in (_table(block), _bullets(block.notes)) if part)
        case _:
            assert_never(block)


_INTERVAL = r"\[(?=[-+., %]{0,20}\d)[-+\d., %]{1,80}\](?![(\[:])"
"""An interval in brackets, which cannot be a link, stays unescaped."""
_MARKS = re.compile(rf"(?P<kept>{_INTERVAL})|[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_ADDRESS = re.compile(r"(?i):(?=//)|(?<=www)(?=\.)|@(?=\S)")
"""What is in an address, of which some pages make a link, or the name of a user."""
_APART = "<!-- -->"
"""An empty comment, which splits an address, so that no page makes a link of it. An entity or a backslash does not
help: some pages look for addresses in what they stand for."""
_BLOCK = re.compile(r"#|[+-](?=[\s-]|$)|\d{1,9}(?=[.)](?:\s|$))")
"""How a line begins that is a heading, an item of a list or a rule."""


def escaped(plain: str) -> str:
    """Plain text in Markdown, for use inside a table too: no part of it is a mark, a link, an image, HTML or the name
    of a user."""
    return _ADDRESS.sub(lambda found: f"{found[0]}{_APART}", _without_marks(plain))


def _without_marks(plain: str) -> str:
    """As `escaped`, without addresses and names of users."""
    plain = " ".join(visible(plain).split())
    plain = re.sub("[&<>]", lambda found: _ENTITIES[found[0]], plain)
    return _MARKS.sub(lambda found: found[0] if found["kept"] else f"\\{found[0]}", plain)


def _strong(plain: str) -> str:
    return f"**{text}**" if (text := escaped(plain)) else ""  # four marks would be a rule


def line(plain: str) -> str:
    """As `escaped`, for a text that begins a line, or is a heading: it begins no list, no heading and no rule."""
    text = escaped(plain)
    if (start := _BLOCK.match(text)) is not None:
        place = start.end() if start[0].isdecimal() else 0
        text = f"{text[:place]}\\{text[place:]}"
    return re.sub(r"(?<= )(#+)$", r"\\\1", text)


def _code(text: str) -> str:
    """Lines that nothing in them ends: the fence is longer than any other. An indented block would be part of a list
    before it."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    language = "python" if text.startswith(("import ", "from ")) else "bash"
    return "\n".join([fence + language, *(visible(each).rstrip() for each in text.splitlines()), fence])


def _table(table: Table) -> str:
    rule = ["---"] * table.text_columns + ["---:"] * (len(table.columns) - table.text_columns)
    lines = [list(map(escaped, table.columns)), rule, *(list(map(escaped, row)) for row in table.rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line(each)}" for each in lines)
