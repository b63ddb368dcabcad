"""`report.html`: one file that filters variants with sliders. It runs from disk and loads nothing.

Python computes its data, as JSON. Its script draws, sorts and filters them.
The figure is drawn by plotly.js, whose script is in the package `plotly` and is copied into the page.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from distill.report.html import rendered
from distill.report.variants import Run
from distill.report.web.data import page_data
from distill.report.web.sections import sections


def page(runs: Sequence[Run], title: str, hidden: str = "") -> str:
    """The page over one run or many.

    Args:
        runs: finished runs; their texts are escaped.
        title: of the page.
        hidden: a sentence on runs that are not shown.
    """
    data = page_data(runs)
    plotly, own = _plotly(), _own("page.js")
    return rendered(
        "page.html",
        title=title,
        hidden=hidden,
        data=data,
        embedded=Markup(embedded(data)),
        runs=sections(runs),
        style=Markup(_own("page.css")),
        script=Markup(own),
        plotly=Markup(plotly),
        policy=policy([plotly, own]),
    )


def embedded(data: dict[str, Any]) -> str:
    """JSON that can stand in a script element: it has no character that HTML or JavaScript gives a meaning to."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def policy(scripts: Sequence[str]) -> str:
    """The security policy of the page: it runs exactly these scripts, and loads nothing."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{value}'" for value in hashes)
    rules = (f"script-src {allowed}", "style-src 'unsafe-inline'", "img-src data: blob:", "base-uri 'none'")
    return "; ".join(["default-src 'none'", *rules, "form-action 'none'"])


@cache
def _plotly() -> str:
    """plotly.js from the installed package, with the line ends that a browser's parser makes of it."""
    from plotly.offline import get_plotlyjs

    script: str = get_plotlyjs()
    return script.replace("\r\n", "\n").replace("\r", "\n")


@cache
def _own(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
