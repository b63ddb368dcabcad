"""Reports of a run, made from its `results.json`: Markdown, HTML, the picture, the terminal and the model card."""

from __future__ import annotations

from pathlib import Path

from distill.checkpoint import write_bytes, write_json, write_text
from distill.report import figure, html, markdown, page
from distill.report.card import embedder_card, heads_card, model_card, plain_card
from distill.report.read import read, read_one
from distill.report.schema import Results, validate
from distill.report.terminal import show

__all__ = [
    "embedder_card",
    "heads_card",
    "model_card",
    "plain_card",
    "read_one",
    "show",
    "validate",
    "write",
    "write_overview",
    "write_pages",
]


def write(results: Results, folder: Path) -> dict[str, Path]:
    """Write results.json and all reports of one run into `folder`, each file atomically.

    Returns name -> path of each file. Raises ValueError, and writes nothing, if the results are not valid in schema 3.
    """
    if wrong := validate(results):
        raise ValueError("results are not of schema 3: " + "; ".join(wrong))
    paths = write_pages(results, folder)
    write_json(folder / "results.json", results)
    return paths | {"results": folder / "results.json"}


def write_pages(results: Results, folder: Path) -> dict[str, Path]:
    """Write the reports of valid results into `folder`. Returns name -> path of each file."""
    points, smoke = figure.points(results), bool(results.get("smoke"))
    svg, png = figure.svg(points, smoke), figure.png(points, smoke)
    blocks = page.run_page(results, svg)
    write_text(folder / "report.md", markdown.text(blocks))
    write_text(folder / "report.html", html.document(f"{results['recipe']}: distillation report", blocks))
    write_text(folder / "frontier.svg", svg)
    write_bytes(folder / "frontier.png", png)
    return {
        "report": folder / "report.md",
        "page": folder / "report.html",
        "picture": folder / "frontier.svg",
        "picture as PNG": folder / "frontier.png",
    }


def write_overview(folder: Path) -> dict[str, Path]:
    """Write report.md, report.html and frontier.svg on all runs below `folder`; DataError if there is none."""
    blocks, svg = page.overview_page(read(folder))
    write_text(folder / "report.md", markdown.text(blocks))
    write_text(folder / "report.html", html.document(page.ALL_RUNS, blocks))
    write_text(folder / "frontier.svg", svg)
    return {"report": folder / "report.md", "page": folder / "report.html", "picture": folder / "frontier.svg"}
