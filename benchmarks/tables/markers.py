"""Parts of documents that are generated, each between two comments."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from distill.errors import DataError
from distill.report import markdown
from distill.report.page import Paragraph
from distill.report.table import Table

_LINK = re.compile(r"\\\[([^\\\]]+)\\\]\((?=(?:[\w.-]+/)*[\w-]+\.md\))")
"""A link to a page beside this one, escaped as all text of tables and paragraphs is."""


def linked(text: str) -> str:
    """Markdown whose links to pages are links again."""
    return _LINK.sub(r"[\1](", text)


SEVERAL = (
    ", its 95% interval over rows and seeds where that is known, and in parentheses the value of each seed, in their "
    "order (- for one without it)"
)
"""What the numbers of several seeds are, in a note."""


def between(document: Path, text: str, name: str, content: str) -> str:
    """`text`, that of `document`, with `content` between the markers with this name."""
    before, begin, rest = text.partition(f"<!-- {name}:begin -->")
    _, end, after = rest.partition(f"<!-- {name}:end -->")
    if not end:
        raise DataError(f"{document}: got no {name} markers; must have <!-- {name}:begin --> and <!-- {name}:end -->")
    return f"{before}{begin}\n{content}\n{end}{after}"


def measured_part(table: Table) -> str:
    """A table, and its notes as one paragraph."""
    return linked(markdown.text([replace(table, notes=[]), Paragraph(" ".join(table.notes))]).rstrip("\n"))
