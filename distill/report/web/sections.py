"""The run by run part of the page, as blocks: what it found, covered, was measured on, and its exact command."""

from __future__ import annotations

from collections.abc import Sequence

from distill.report import footnotes, headline, model_rows
from distill.report.detail import coverage_table, environment_table, stages_table, tables
from distill.report.page import Block, Bullets, Heading, Paragraph, origin
from distill.report.page import sections as of_tables
from distill.report.variants import Run


def sections(runs: Sequence[Run]) -> list[tuple[str, list[Block]]]:
    """(title, blocks) of each run. A single run has all its tables; several runs have the tables that differ from run
    to run."""
    whole = len(runs) == 1
    return [(_title(run), _blocks(run, whole)) for run in runs]


def _title(run: Run) -> str:
    seeds = ", ".join(map(str, run.results.seeds))
    return f"{run.folder}: recipe {run.results.recipe}, seed {seeds}"


def _blocks(run: Run, whole: bool) -> list[Block]:
    results = run.results
    shown = tables(results) if whole else [coverage_table(results), stages_table(results), environment_table(results)]
    notes = [*model_rows.on_the_cpu(results), *(results.notes or ()), *footnotes.pruned(results)]
    noted: list[Block] = [Heading("Notes", 3), Bullets(notes)] if notes else []
    return [
        Paragraph(headline.headline(results)),
        Heading("Exact command", 3),
        *origin(results),
        Heading("What the average covers", 3),
        Bullets(footnotes.coverage(results)),
        Heading("How it was timed", 3),
        Paragraph(footnotes.timing(results)),
        *noted,
        *of_tables(shown),
    ]
