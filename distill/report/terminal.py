"""The end of a run on the terminal: headline, table, what it covers, where the files are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from distill.report import headline
from distill.report.schema import Results
from distill.report.table import Table, models_table

_COLOURS = {"teacher": "dim", "student": "bold", "baseline": "", "member": "dim", "pruned": ""}
_WIDE = 150
"""Columns of a terminal that has room for the whole table."""
_SPARED = ("Role", "Same backend")
"""Columns left out of a narrower one, and so are intervals: the reports have them."""


def table(shown: Table, width: int) -> RichTable:
    """Every cell is plain text: brackets in a name are no markup."""
    narrow = width < _WIDE
    kept = [i for i, name in enumerate(shown.columns) if not (narrow and name in _SPARED)]

    def cell(index: int, text: str) -> Text:
        interval = narrow and index >= shown.text_columns
        return Text(text.partition(" [")[0] if interval else text)

    made = RichTable(box=None, pad_edge=False, header_style="dim")
    for index in kept:
        number = index >= shown.text_columns
        title = cell(index, shown.columns[index])
        made.add_column(title, justify="right" if number else "left", no_wrap=not number)
    for role, row in zip(shown.roles or [""] * len(shown.rows), shown.rows, strict=True):
        made.add_row(*(cell(index, row[index]) for index in kept), style=_COLOURS.get(role, ""))
    return made


def show(results: Results, paths: Mapping[str, Path] | None = None, console: Console | None = None) -> None:
    """Print a run's result; `paths` (what it is -> where it is) are listed last."""
    out = console or Console()
    main = models_table(results)
    if results.get("smoke"):
        out.print(Text(headline.SMOKE, style="bold red"))
    out.print(Text(headline.headline(results), style="bold"))
    out.print()
    out.print(table(main, out.width))
    out.print()
    for line in [*main.notes, *headline.coverage(results)]:
        out.print(Text(line, style="dim"))
    for name, path in (paths or {}).items():
        out.print(Text(f"{name}: {path}"), soft_wrap=True)
