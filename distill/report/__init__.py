"""From `results.json` to what people read: Markdown, one HTML file, the picture, the terminal, the model card."""

from __future__ import annotations

from pathlib import Path

from distill.checkpoint import write_json, write_text
from distill.report import figure, html, markdown, overview
from distill.report.card import embedder_card, model_card, plain_card
from distill.report.schema import Results, validate
from distill.report.terminal import show

__all__ = ["embedder_card", "model_card", "plain_card", "show", "validate", "write", "write_overview"]


def write(results: Results, folder: Path) -> dict[str, Path]:
    """Write results.json and all reports of one run into `folder`; each file whole or not at all.

    Returns what it is -> where it is. ValueError, and nothing written, if the results are not of schema 1.
    """
    wrong = validate(results)
    if wrong:
        raise ValueError("results are not of schema 1: " + "; ".join(wrong))
    shown, smoke = figure.points(results), bool(results.get("smoke"))
    drawn = figure.svg(shown, smoke)
    texts = {
        "report.md": markdown.page(results),
        "report.html": html.page(results, drawn),
        "frontier.svg": drawn,
    }
    picture = figure.png(shown, smoke)
    for name, text in texts.items():
        write_text(folder / name, text)
    _write_bytes(folder / "frontier.png", picture)
    write_json(folder / "results.json", results)
    return {
        "report": folder / "report.md",
        "page": folder / "report.html",
        "results": folder / "results.json",
        "picture": folder / "frontier.svg",
        "picture as PNG": folder / "frontier.png",
    }


def write_overview(folder: Path) -> dict[str, Path]:
    """Write report.md, report.html and frontier.svg over every run below `folder`; DataError if there is none."""
    made, document, drawn = overview.pages(overview.read(folder))
    texts = {"report.md": made, "report.html": document, "frontier.svg": drawn}
    for name, text in texts.items():
        write_text(folder / name, text)
    return {"report": folder / "report.md", "page": folder / "report.html", "picture": folder / "frontier.svg"}


def _write_bytes(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)
