"""What the site's search shows first: a hook of mkdocs.

Pages that answer questions come before pages that list what the code or a run has: those contain nearly every word.
"""

from __future__ import annotations

from typing import Any

BOOSTS = {"questions.md": 2.0, "results": 0.3, "api.md": 0.3, "results-json.md": 0.5, "explain": 0.7}
"""First part of a page's path -> the factor of its score."""


def on_page_markdown(markdown: str, page: Any, **_: Any) -> None:
    boost = BOOSTS.get(page.file.src_uri.split("/")[0])
    if boost is not None:
        page.meta["search"] = {"boost": boost}
