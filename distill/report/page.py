"""A page as one list of blocks, which Markdown, HTML and the terminal each render. All text in blocks is plain text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from distill.evaluation.results import Results
from distill.report import figure, footnotes, gains, headline, model_rows, overview, pruning_table
from distill.report.decision import Decision, decided
from distill.report.detail import tables
from distill.report.table import Table, models_table
from distill.report.variants import Run, groups

PICTURE = "Retained % against speedup"
ALL_RUNS = "All runs"


@dataclass(frozen=True)
class Heading:
    """Of the page (level 1) or of a section (level 2)."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Banner:
    """A warning at the top of the page."""

    text: str


@dataclass(frozen=True)
class Headline:
    """The result."""

    text: str


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Code:
    text: str


@dataclass(frozen=True)
class Bullets:
    lines: Sequence[str]


@dataclass(frozen=True)
class Picture:
    """`file` is beside the page; `svg` is the same picture, for a page that contains it."""

    file: str
    svg: str = ""
    text: str = PICTURE


Block = Heading | Banner | Headline | Paragraph | Code | Bullets | Picture | Table
"""A table is shown with its notes and without its title."""


def banner(smoke: bool) -> list[Block]:
    return [Banner(headline.SMOKE)] if smoke else []


def origin(results: Results) -> list[Block]:
    """Teacher, version, seeds and command of a run."""
    seeds = ", ".join(map(str, results.seeds))
    teacher = results.teacher_name or "-"
    return [
        Paragraph(f"Teacher: {teacher}. Run with distill {results.version}, seed {seeds}."),
        *([Paragraph(results.older_rules)] if results.older_rules else []),
        *command(results.command),
    ]


def command(text: str) -> list[Block]:
    """A command on one line; no block for an empty one."""
    return [Code(" ".join(text.split()))] if text else []


def section(table: Table | None) -> list[Block]:
    """A table with its title; nothing for a table that is absent, or that has neither rows nor notes."""
    return [Heading(table.title), table] if table is not None and (table.rows or table.notes) else []


def sections(every: Iterable[Table | None]) -> list[Block]:
    return [block for table in every for block in section(table)]


def run_page(run: Run, drawn: str) -> list[Block]:
    """The report of one run; `drawn` is its picture as SVG."""
    results, made = run.results, decided(run)
    return [
        Heading(results.recipe, 1),
        *banner(bool(results.smoke)),
        Headline(" ".join(made.sentences)),
        made.table,
        *use(made),
        Picture("frontier.svg", drawn),
        Heading("The whole result"),
        Paragraph(headline.headline(results)),
        *origin(results),
        models_table(results),
        Heading("What the average covers"),
        Bullets(footnotes.coverage(results)),
        Heading("How latency was measured"),
        Paragraph(footnotes.timing(results)),
        *sections(tables(results)),
    ]


def summary(results: Results, made: Decision) -> list[Block]:
    """The end of a run on the terminal, but for how the choice is used: what to ship, the short table, what the average
    covers, and what failed."""
    notes = [*footnotes.coverage(results), *model_rows.on_the_cpu(results), *footnotes.failed(results)]
    return [*banner(bool(results.smoke)), Headline(" ".join(made.sentences)), made.table, Bullets(notes)]


def use(made: Decision) -> list[Block]:
    """How the choice of a run is used, and how its student, if that is not the choice: the command and the code of
    each, or why there are none."""
    blocks = list[Block]()
    for number, each in enumerate(made.uses):
        blocks += [Paragraph("To use the student all the same:")] * (number > 0 or made.chosen is None)
        blocks += [Code(text) for text in (each["command"], each["code"]) if text]
        blocks += [Paragraph(each["note"])] if each["note"] else []
    return blocks


def real(runs: Sequence[Results]) -> tuple[list[Results], str]:
    """The runs that a page on many shows, smoke runs only if there is no other, and a sentence on the others."""
    shown = [run for run in runs if not run.smoke] or list(runs)
    hidden = len(runs) - len(shown)
    text = f"Not shown: {model_rows.counted(hidden, 'run')} with limit=smoke, whose numbers mean nothing."
    return shown, text if hidden else ""


def overview_page(runs: Sequence[Results]) -> tuple[list[Block], dict[str, str]]:
    """The page over many runs, with a section for each group of comparable runs; and file name -> picture as SVG."""
    shown, hidden = real(runs)
    smoke = any(run.smoke for run in shown)
    text = f"{model_rows.counted(len(shown), 'run')}: {len(overview.entries(shown))} variants of students and controls."
    text += f" {hidden}" if hidden else ""
    blocks: list[Block] = [Heading(ALL_RUNS, 1), *banner(smoke), Headline(text)]
    pictures = {}
    named = groups([Run("", run) for run in shown])
    for number, group in enumerate(named, 1):
        of_group = [shown[i] for i in group.runs]
        entries = overview.entries(of_group)
        file = "frontier.svg" if number == 1 else f"frontier-{number}.svg"
        pictures[file] = figure.svg(overview.points(entries), smoke, model_rows.reference(of_group[0]))
        blocks += [
            *([Heading(group.title)] if len(named) > 1 else []),
            Bullets(overview.headlines(of_group)),
            Picture(file, pictures[file]),
            overview.table(entries),
            *section(gains.table(of_group)),
            *section(pruning_table.table(of_group)),
        ]
    return blocks, pictures
