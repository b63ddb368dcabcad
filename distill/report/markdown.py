"""Blocks as Markdown that is readable as plain text too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from distill.report.page import Banner, Block, Bullets, Code, Heading, Headline, Paragraph, Picture
from distill.report.table import Table


def text(blocks: Sequence[Block]) -> str:
    """A page, or a part of a page; ends with a newline."""
    return "\n\n".join(part for part in map(_block, blocks) if part) + "\n"


def _block(block: Block) -> str:
    match block:
        case Heading():
            return f"{'#' * block.level} {escaped(block.text)}"
        case Banner():
            return f"> **{escaped(block.text)}**"
        case Headline():
            return f"**{escaped(block.text)}**"
        case Paragraph():
            return escaped(block.text)
        case Code():
            return "\n".join(f"    {line}".rstrip() for line in block.text.splitlines())
        case Bullets():
            return _bullets(block.lines)
        case Picture():
            return f"![{escaped(block.text)}]({block.file})"
        case Table():
            return "\n\n".join(part for part in (_table(block), _bullets(block.notes)) if part)
        case _:
            assert_never(block)


def escaped(plain: str) -> str:
    """Plain text with Markdown's marks escaped, for use inside a table too."""
    for mark, shown in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("`", "\\`"), ("*", "\\*")):
        plain = plain.replace(mark, shown)
    return " ".join(plain.split())


def _table(table: Table) -> str:
    rule = ["---"] * table.text_columns + ["---:"] * (len(table.columns) - table.text_columns)
    lines = [list(map(escaped, table.columns)), rule, *(list(map(escaped, row)) for row in table.rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {escaped(line)}" for line in lines)
