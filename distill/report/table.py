"""A table of plain text cells, and the main table of a report.

A missing value is "-". A failed model keeps its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import UNSET, UnsetType

from distill.evaluation.results import Model, Results
from distill.report import averages, footnotes, itself, kept, model_rows
from distill.report.timed import at, median, reported_input

Row = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Every row has one cell for each column."""

    title: str
    columns: Row
    rows: Sequence[Row]
    text_columns: int = 1
    """Number of leading columns that contain text; the others contain numbers and are aligned right."""
    notes: list[str] = field(default_factory=list)
    """Lines under the table."""
    roles: list[str] = field(default_factory=list)
    """The role of the model in each row, where rows are models."""


def number(value: float | UnsetType | None, digits: int = 1) -> str:
    return "-" if value is None or value is UNSET else f"{value:,.{digits}f}"


def time_in_ms(value: float | None) -> str:
    """Three digits of a time below one millisecond, such as that of a static model for a text."""
    return number(value, 3 if value is not None and value < 1 else 1)


def times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def with_interval(text: str, ends: Sequence[float] | None, digits: int) -> str:
    return f"{text} [{ends[0]:.{digits}f}, {ends[1]:.{digits}f}]" if ends and text != "-" else text


def millions(count: int | UnsetType | None) -> str:
    return "-" if count is None or count is UNSET else f"{count / 1e6:.2f} M"


def roles(results: Results) -> list[str]:
    return [model.role for model in results.models]


def models_table(results: Results) -> Table:
    """The main table: size, latency, score, retained % and speedup of every model."""
    shape, over = reported_input(results), kept.kept_name(results)
    above = any(model_rows.above_chance(m) is not None for m in results.models)
    rows = [
        (
            m.name,
            m.role,
            m.backend,
            m.scheme,
            millions(m.parameters),
            number(m.size_mib),
            time_in_ms(median(m, shape)),
            number(m.macro),
            _retained(m),
            *([_above(m)] if above else []),
            with_interval(times(model_rows.speedup(m)), model_rows.interval(m, "speedup"), 2),
            *([_over_kept(m)] if over else []),
            times(m.speedup.same_backend if m.speedup else None),
        )
        for m in results.models
    ]
    columns = (
        "Model",
        "Role",
        "Backend",
        "Scheme",
        "Parameters",
        "MiB",
        f"ms{at([shape])}",
        averages.average_name(results),
        "Retained % [95%]",
        *(["Above chance % [95%]"] if above else []),
        f"Speedup{at([shape])} [95%]",
        *([f"Over {over} [95%]"] if over else []),
        "Speedup, same backend",
    )
    return Table("Models", columns, rows, 4, _model_notes(results, above), roles(results))


def _retained(model: Model) -> str:
    if model.failed:
        return "failed"
    return with_interval(number(model_rows.retained(model)), model_rows.interval(model, "retained"), 1)


def _above(model: Model) -> str:
    return with_interval(number(model_rows.above_chance(model)), model_rows.interval(model, "above_chance"), 1)


def _over_kept(model: Model) -> str:
    found = kept.kept(model)
    return "-" if found is None else with_interval(times(found.median), kept.of_rounds(found.ci95), 2)


def without_skill(results: Results) -> str:
    """The predictors whose score is chance, in words."""
    return "the best constant predictors" + (" or guesses" if results.guessed else "")


def _model_notes(results: Results, above: bool) -> list[str]:
    subtracted = (
        f"Above chance: the same, with what {without_skill(results)} score subtracted from both. " if above else ""
    )
    return [
        f"Retained %: the model's {model_rows.macro_score(results)} as a percentage of the teacher's. "
        f"{subtracted}Speedup: over {model_rows.reference(results)} on any backend, or on the same backend. "
        "Shapes such as 8x128 are batch x length.",
        *itself.note(results),
        *kept.note(results),
        *model_rows.on_the_cpu(results),
        *footnotes.failed(results),
        *(results.notes or ()),
        *footnotes.pruned(results),
    ]
