"""A report as Markdown, readable as it stands."""

from __future__ import annotations

from collections.abc import Iterable

from distill.report import headline
from distill.report.detail import tables
from distill.report.schema import Results
from distill.report.table import Table, models_table


def escaped(text: str) -> str:
    """Text that Markdown takes as text, also inside of a table."""
    for mark, shown in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("`", "\\`"), ("*", "\\*")):
        text = text.replace(mark, shown)
    return " ".join(text.split())


def table(shown: Table) -> str:
    """A pipe table, without title and notes."""
    rule = ["---"] * shown.text_columns + ["---:"] * (len(shown.columns) - shown.text_columns)
    lines = [list(map(escaped, shown.columns)), rule, *(list(map(escaped, row)) for row in shown.rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {escaped(line)}" for line in lines)


def section(shown: Table) -> str:
    """Title, table and notes."""
    parts = [f"## {escaped(shown.title)}", table(shown), bullets(shown.notes)]
    return "\n\n".join(part for part in parts if part)


def banner(smoke: bool) -> str:
    return f"> **{headline.SMOKE}**" if smoke else ""


def page(results: Results) -> str:
    """The report of one run; its picture is `frontier.svg` beside it."""
    main = models_table(results)
    parts = [
        f"# {escaped(results['recipe'])}",
        banner(bool(results.get("smoke"))),
        f"**{escaped(headline.headline(results))}**",
        f"Teacher: {escaped(results.get('teacher_name', '-'))}. "
        f"Made by distill {escaped(results['version'])}, seed {', '.join(map(str, results['seeds']))}:",
        f"    {' '.join(results['command'].split())}" if results["command"] else "",
        "![Retained % against speedup](frontier.svg)",
        table(main),
        bullets(main.notes),
        "## What the average covers",
        bullets(headline.coverage(results)),
        "## How it was timed",
        escaped(headline.timing(results)),
        *map(section, tables(results)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"
