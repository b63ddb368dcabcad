"""Rows of measurements, which print as a table: what `distill.benchmark` and `distill.evaluate` return."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any


class Rows(list[dict[str, Any]]):
    """A list of rows with the same keys. Printed, and in a notebook, it is a table."""

    def __str__(self) -> str:
        header, *rows = self.cells()
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

        def line(row: list[str]) -> str:
            first, *others = zip(row, widths, strict=True)
            return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]).rstrip()

        return "\n".join(map(line, (header, *rows)))

    def _repr_html_(self) -> str:
        header, *rows = self.cells()
        head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        return f"<table><tr>{head}</tr>{body}</table>"

    def cells(self) -> list[list[str]]:
        """The names of the columns, and the text of each cell. A value of several names has a column for each."""
        flat = [dict(_flat(row)) for row in self]
        names = list(dict.fromkeys(name for row in flat for name in row))
        return [names, *([_text(row.get(name)) for name in names] for row in flat)]


def _flat(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield from ((inner if name == "scores" else f"{inner} {name}", each) for inner, each in value.items())
        else:
            yield name, value


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    return str(value)
