"""Blocks as one HTML file that contains its style and picture: it loads nothing from the network and runs no script."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import assert_never

from distill.report import figure
from distill.report.page import Banner, Block, Bullets, Code, Heading, Headline, Paragraph, Picture
from distill.report.table import Table

_STYLE = """
:root { color-scheme: light dark; --ink: #24292f; --soft: #5b6470; --ground: #ffffff; --panel: #f5f7f9;
  --line: #d9dee4; --accent: #1f77d0; --warn: #b3261e; --warn-ground: #fdecea; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e7ec; --soft: #9aa5b1; --ground: #14181d; --panel: #1c2229;
  --line: #343c46; --accent: #6cb0f5; --warn: #ffb4ab; --warn-ground: #442220; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.5rem 4rem; max-width: 74rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.1rem; color: var(--soft); font-weight: 600; margin: 0 0 .5rem; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem; }
.headline { font-size: 1.45rem; line-height: 1.38; margin: 0 0 .8rem; max-width: 60rem; }
.meta, .notes { color: var(--soft); font-size: .9rem; max-width: 62rem; }
.notes { margin: .5rem 0 0; padding-left: 1.1rem; }
.banner { background: var(--warn-ground); color: var(--warn); border: 2px solid var(--warn); padding: .7rem 1rem;
  font-weight: 700; border-radius: 6px; margin-bottom: 1.2rem; }
pre { margin: 0 0 .8rem; white-space: pre-wrap; overflow-wrap: anywhere; max-width: 62rem; }
code { background: var(--panel); padding: .15rem .35rem; border-radius: 4px; font-size: .85rem; }
figure { margin: 1.5rem 0; color: var(--ink); }
figure svg { display: block; width: 100%; max-width: 56rem; height: auto; }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .42rem .7rem; text-align: left; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { background: var(--panel); color: var(--soft); font-weight: 600; vertical-align: bottom; white-space: normal; }
tr:last-child td { border-bottom: 0; }
.n { text-align: right; }
td.long { white-space: normal; min-width: 24rem; overflow-wrap: anywhere; }
tr.student td:first-child { box-shadow: inset 3px 0 var(--accent); font-weight: 600; }
tr.teacher td, tr.member td { color: var(--soft); }
tr.baseline td:first-child { box-shadow: inset 3px 0 #2e9e6b; }
"""

_LONG, _WRAPPED = 80, ' class="long"'
"""Characters of the longest cell on one line, and the class of a longer one."""


def document(title: str, blocks: Sequence[Block]) -> str:
    """A whole page."""
    body = "\n".join(part for part in map(_block, blocks) if part)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _block(block: Block) -> str:
    match block:
        case Heading():
            return f"<h{block.level}>{escape(block.text)}</h{block.level}>"
        case Banner():
            return f'<div class="banner" role="alert">{escape(block.text)}</div>'
        case Headline():
            return f'<p class="headline">{escape(block.text)}</p>'
        case Paragraph():
            return f'<p class="meta">{escape(block.text)}</p>'
        case Code():
            return f"<pre><code>{escape(block.text)}</code></pre>"
        case Bullets():
            return _bullets(block.lines)
        case Picture():
            return _picture(block)
        case Table():
            return "\n".join(part for part in (_table(block), _bullets(block.notes)) if part)
        case _:
            assert_never(block)


def _table(table: Table) -> str:
    """A table in a box that scrolls sideways on its own."""
    kinds = [""] * table.text_columns + [' class="n"'] * (len(table.columns) - table.text_columns)
    head = "".join(f"<th{kind}>{escape(cell)}</th>" for kind, cell in zip(kinds, table.columns, strict=True))
    rows = []
    for role, row in zip(table.roles or [""] * len(table.rows), table.rows, strict=True):
        cells = "".join(
            f"<td{_WRAPPED if len(cell) > _LONG else kind}>{escape(cell)}</td>"
            for kind, cell in zip(kinds, row, strict=True)
        )
        rows.append(f'<tr class="{escape(role)}">{cells}</tr>' if role else f"<tr>{cells}</tr>")
    body = "\n".join(rows)
    return f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'


def _bullets(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="notes">{items}</ul>' if items else ""


def _picture(picture: Picture) -> str:
    """The SVG without its prologue, in the text colour of the page."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", picture.svg[picture.svg.index("<svg") :], flags=re.DOTALL)
    svg = svg.replace(figure.INK, "currentColor")
    return f'<figure role="img" aria-label="{escape(picture.text)}">\n{svg}</figure>'
