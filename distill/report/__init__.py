"""Reports of a run, made from its `results.json`: Markdown, HTML, the picture, the terminal and the model card."""

from __future__ import annotations

from pathlib import Path

from msgspec import to_builtins

from distill.evaluation.results import Results
from distill.report import figure, markdown, model_rows, page, web
from distill.report.card import embedder_card as embedder_card
from distill.report.card import heads_card as heads_card
from distill.report.card import model_card as model_card
from distill.report.card import plain_card as plain_card
from distill.report.checked import validate as validate
from distill.report.read import read_one as read_one
from distill.report.read import read_paths, read_rows
from distill.report.terminal import show as show
from distill.report.variants import Run, folder_name
from distill.runtime.storage.atomic import write_json
from distill.runtime.storage.outputs import write_all


def write(results: Results, folder: Path) -> dict[str, Path]:
    """Write results.json and all reports of one run into `folder`, each file atomically.

    Returns name -> path of each file. Raises ValueError, and writes nothing, if the results are not valid.
    """
    document = {"schema": results.schema} | to_builtins(results, enc_hook=float)  # first in the file
    if wrong := validate(document):
        raise ValueError("results are not valid: " + "; ".join(wrong))
    paths = write_pages(results, folder)
    write_json(folder / "results.json", document)
    return paths | {"results": folder / "results.json"}


def write_pages(results: Results, folder: Path, *, overwrite: bool = False) -> dict[str, Path]:
    """Write the reports of valid results into `folder`. Returns name -> path of each file.

    Raises ConfigError, without `overwrite`, if a file of somebody else would be replaced.
    """
    points, smoke = figure.points(results), bool(results.smoke)
    over, below = model_rows.reference(results), figure.second(results)
    svg, png = figure.both(points, smoke, over, below)
    run = Run(folder_name(folder), results, read_rows(folder))
    blocks = page.run_page(run, svg)
    files = {
        "report.md": markdown.text(blocks).encode(),
        "report.html": web.page([run], f"{results.recipe}: distillation report").encode(),
        "frontier.svg": svg.encode(),
        "frontier.png": png,
    }
    write_all(folder, files, "FOLDER", of_run=True, overwrite=overwrite)
    return {
        "report": folder / "report.md",
        "page": folder / "report.html",
        "picture": folder / "frontier.svg",
        "picture as PNG": folder / "frontier.png",
    }


def write_overview(folder: Path, *, overwrite: bool = False) -> dict[str, Path]:
    """Write report.md, report.html and a picture for each group of comparable runs, on all runs below `folder`.

    Returns name -> path of the pages and the first picture. Raises DataError without a run; raises ConfigError, without
    `overwrite`, if a file of somebody else would be replaced.
    """
    runs = read_runs(folder)
    blocks, pictures = page.overview_page([run.results for run in runs])
    shown, hidden = page.real([run.results for run in runs])
    kept = [run for run in runs if any(run.results is one for one in shown)]
    files = {"report.md": markdown.text(blocks), "report.html": web.page(kept, page.ALL_RUNS, hidden), **pictures}
    encoded = {name: text.encode() for name, text in files.items()}
    write_all(folder, encoded, "FOLDER", of_run=True, overwrite=overwrite)
    return {"report": folder / "report.md", "page": folder / "report.html", "picture": folder / next(iter(pictures))}


def read_runs(folder: Path) -> list[Run]:
    """Every distinct run below `folder`, or in it, with its disagreeing rows. Raises DataError without a run."""
    paths = read_paths(folder)
    return [Run(folder_name(path.parent), results, read_rows(path.parent)) for path, results in paths.items()]
