"""A table of plain text cells, and the main table of a report.

A missing value is "-". A failed model keeps its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from distill.report import footnotes, headline
from distill.report.schema import Model, Results
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


def number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def with_interval(text: str, ends: Sequence[float] | None, digits: int) -> str:
    return f"{text} [{ends[0]:.{digits}f}, {ends[1]:.{digits}f}]" if ends and text != "-" else text


def millions(count: int | None) -> str:
    return "-" if count is None else f"{count / 1e6:.2f} M"


def roles(results: Results) -> list[str]:
    return [model["role"] for model in results["models"]]


def models_table(results: Results) -> Table:
    """The main table: size, latency, score, retained % and speedup of every model."""
    shape = reported_input(results)
    rows = [
        (
            m["name"],
            m["role"],
            m["backend"],
            m["scheme"],
            millions(m.get("parameters")),
            number(m.get("size_mib")),
            number(median(m, shape)),
            number(m.get("macro")),
            _retained(m),
            with_interval(times(headline.speedup(m)), headline.interval(m, "speedup"), 2),
            times((m.get("speedup") or {}).get("same_backend")),
        )
        for m in results["models"]
    ]
    columns = (
        "Model",
        "Role",
        "Backend",
        "Scheme",
        "Parameters",
        "MiB",
        f"ms{at([shape])}",
        headline.average_name(results),
        "Retained % [95%]",
        f"Speedup{at([shape])} [95%]",
        "Speedup, same backend",
    )
    return Table("Models", columns, rows, 4, _model_notes(results), roles(results))


def _retained(model: Model) -> str:
    if "failed" in model:
        return "failed"
    return with_interval(number(headline.retained(model)), headline.interval(model, "retained"), 1)


def _model_notes(results: Results) -> list[str]:
    failed = [f"{m['name']} ({headline.variant(m)}) failed: {m['failed']}" for m in results["models"] if "failed" in m]
    return [
        f"Retained %: the model's {headline.macro_score(results)} as a percentage of the teacher's. Speedup: over "
        f"{headline.reference(results)} on any backend, or on the same backend. Shapes such as 8x128 are batch x "
        "length.",
        *headline.on_the_cpu(results),
        *failed,
        *results.get("notes", []),
        *footnotes.pruned(results),
    ]
