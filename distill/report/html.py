"""A report as one HTML file: its style and picture are in it, it asks the network for nothing and runs no script."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from distill.report import figure, headline
from distill.report.detail import tables
from distill.report.schema import Results
from distill.report.table import Table, models_table

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
code { background: var(--panel); padding: .15rem .35rem; border-radius: 4px; overflow-wrap: anywhere; }
figure { margin: 1.5rem 0; color: var(--ink); }
figure svg { display: block; width: 100%; max-width: 56rem; height: auto; }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .42rem .7rem; text-align: left; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { background: var(--panel); color: var(--soft); font-weight: 600; vertical-align: bottom; white-space: normal; }
tr:last-child td { border-bottom: 0; }
.n { text-align: right; }
tr.student td:first-child { box-shadow: inset 3px 0 var(--accent); font-weight: 600; }
tr.teacher td, tr.member td { color: var(--soft); }
tr.baseline td:first-child { box-shadow: inset 3px 0 #2e9e6b; }
"""


def table(shown: Table) -> str:
    """A table in a box that scrolls sideways by itself, with its notes below."""
    kinds = [""] * shown.text_columns + [' class="n"'] * (len(shown.columns) - shown.text_columns)
    head = "".join(f"<th{kind}>{escape(cell)}</th>" for kind, cell in zip(kinds, shown.columns, strict=True))
    rows = []
    for role, row in zip(shown.roles or [""] * len(shown.rows), shown.rows, strict=True):
        cells = "".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(kinds, row, strict=True))
        rows.append(f'<tr class="{escape(role)}">{cells}</tr>' if role else f"<tr>{cells}</tr>")
    body = "\n".join(rows)
    box = f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'
    return box + bullets(shown.notes)


def bullets(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'\n<ul class="notes">{items}</ul>' if items else ""


def section(shown: Table) -> str:
    return f"<h2>{escape(shown.title)}</h2>\n{table(shown)}"


def picture(drawn: str) -> str:
    """The SVG itself, without its prologue, in the page's own colour of ink."""
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn[drawn.index("<svg") :], flags=re.DOTALL)
    drawn = drawn.replace(figure.INK, "currentColor")
    return f'<figure role="img" aria-label="Retained % against speedup">\n{drawn}</figure>'


def document(title: str, smoke: bool, parts: Iterable[str]) -> str:
    """The page around its parts."""
    banner = f'<div class="banner" role="alert">{escape(headline.SMOKE)}</div>\n' if smoke else ""
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{banner}{body}\n</body>\n</html>\n"
    )


def page(results: Results, drawn: str) -> str:
    """The report of one run; `drawn` is its picture as SVG."""
    smoke = bool(results.get("smoke"))
    seeds = ", ".join(map(str, results["seeds"]))
    command = f"<br><code>{escape(results['command'])}</code>" if results["command"] else ""
    parts = [
        f"<h1>{escape(results['recipe'])}</h1>",
        f'<p class="headline">{escape(headline.headline(results))}</p>',
        f'<p class="meta">Teacher: {escape(results.get("teacher_name", "-"))}. '
        f"Made by distill {escape(results['version'])}, seed {seeds}.{command}</p>",
        picture(drawn),
        table(models_table(results)),
        f"<h2>What the average covers</h2>{bullets(headline.coverage(results))}",
        f'<h2>How it was timed</h2>\n<p class="meta">{escape(headline.timing(results))}</p>',
        *map(section, tables(results)),
    ]
    return document(f"{results['recipe']}: distillation report", smoke, parts)
