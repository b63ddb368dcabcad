"""HTML from the templates in `web/`. Every value is escaped, except what a caller marks as HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from distill.errors import visible
from distill.report import figure
from distill.report.page import Block, Picture

TEMPLATES = Path(__file__).parent / "web"


def document(title: str, blocks: Sequence[Block]) -> str:
    """A whole page of blocks that contains its style and pictures. It loads nothing and runs no script."""
    style = Markup((TEMPLATES / "page.css").read_text(encoding="utf-8"))
    return rendered("document.html", title=title, blocks=blocks, style=style)


def rendered(template: str, **values: object) -> str:
    """A template of `web/`; raises jinja2.UndefinedError for a value that it lacks."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_shown,
    )
    environment.filters |= {"kind": lambda block: type(block).__name__, "drawing": _drawing}
    return environment


def _shown(value: object) -> object:
    """A value as the page contains it, before it is escaped."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _drawing(picture: Picture) -> Markup:
    """The SVG without its prologue, in the text colour of the page."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", picture.svg[picture.svg.index("<svg") :], flags=re.DOTALL)
    return Markup(svg.replace(figure.INK, "currentColor"))
