"""Blocks on the terminal: the end of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import assert_never

from rich.console import Console, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from distill.errors import printable_lines
from distill.report.decision import decided
from distill.report.page import Banner, Block, Bullets, Code, Heading, Headline, Paragraph, Picture, summary, use
from distill.report.table import Table
from distill.report.variants import Run
from distill.runtime.messages import events

_COLOURS = {"teacher": "dim", "student": "bold", "member": "dim"}
"""Role of a model -> style of its row; others have none."""
_WIDE = 150
"""Characters across a terminal that is wide enough for the whole table."""
_OMITTED = ("Role", "Speedup, same backend")
"""Columns that a narrower terminal does not show; it shows no intervals either. The reports contain both."""


def show(run: Run, paths: Mapping[str, Path] | None = None, console: Console | None = None) -> None:
    """Print the end of a run: what to ship, `paths` (name of a file -> its path), and how it is used. On a console of
    JSON lines, that is one object."""
    made = decided(run)
    if console is not None and (to := events(console)) is not None:
        files = {name: str(path) for name, path in (paths or {}).items()}
        to.event(ship=made.sentences, use=[dict(use) for use in made.uses], files=files)
        return
    show_blocks(summary(run.results, made), paths, console)
    show_blocks(use(made), None, console)


def show_blocks(
    blocks: Sequence[Block], paths: Mapping[str, Path] | None = None, console: Console | None = None
) -> None:
    """Print blocks, then `paths` (name of a file -> its path)."""
    out = console or Console()
    for block in blocks:
        for part in parts(block, out.width):
            out.print(part, soft_wrap=isinstance(block, Code))  # which is pasted
    for name, path in (paths or {}).items():
        out.print(_plain(f"{name}: {path}"), soft_wrap=True)


def parts(block: Block, width: int) -> Iterator[RenderableType]:
    """The parts that a block is printed as, in order. Text is plain: brackets in a name are not markup."""
    match block:
        case Banner():
            yield _plain(block.text, "bold red")
        case Heading() | Headline():
            yield from [""] * (isinstance(block, Heading) and block.level > 1)
            yield _plain(block.text, "bold")
        case Paragraph():
            yield _plain(block.text)
        case Code():
            yield from ("", _plain(block.text))
        case Bullets():
            yield from (_plain(line, "dim") for line in block.lines)
        case Table():
            yield ""
            yield table(block, width)
            yield ""
            yield from (_plain(line, "dim") for line in block.notes)
        case Picture():
            return  # a terminal shows none
        case _:
            assert_never(block)


def _plain(text: str, style: str = "") -> Text:
    return Text(printable_lines(text), style=style)


def table(shown: Table, width: int) -> RichTable:
    """A table without its notes, at most `width` characters wide."""
    narrow = width < _WIDE
    kept = [i for i, name in enumerate(shown.columns) if not (narrow and name in _OMITTED)]

    def cell(index: int, text: str) -> Text:
        interval = narrow and index >= shown.text_columns
        return _plain(text.partition(" [")[0] if interval else text)

    rich = RichTable(box=None, pad_edge=False, header_style="dim")
    for index in kept:
        number = index >= shown.text_columns
        title = cell(index, shown.columns[index])
        rich.add_column(title, justify="right" if number else "left", no_wrap=not number)
    for role, row in zip(shown.roles or [""] * len(shown.rows), shown.rows, strict=True):
        rich.add_row(*(cell(index, row[index]) for index in kept), style=_COLOURS.get(role, ""))
    return rich
