"""Lines for the user on the columns, the kind and the labels that were chosen. Without torch."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from distill import config
from distill.data.labels import Labels
from distill.data.task_types import Columns
from distill.data.text_pairs import unused
from distill.data.usual_columns import SAMPLE, about_rows


def written_as_text(columns: Columns, lists: frozenset[str]) -> Iterator[str]:
    """A line about columns whose lists are written as text."""
    if found := [name for name in (*columns.text, *columns.choices, *columns.label) if name in lists]:
        yield f"the lists in {' and '.join(found)} are written as text"


def described(name: str, settings: config.Task, columns: Columns, labels: Labels, rows: pa.Table) -> Iterator[str]:
    """A line about what was chosen, unless the settings state all of it, and one about texts that were not."""
    if None in (settings.text, settings.label, settings.kind):
        shown = ", ".join(labels.names[:12]) + (", ..." if len(labels.names) > 12 else "")
        classes = f" with {len(labels.names)} labels ({shown})" if labels.names else ""
        yield (
            f"{name}: text from {' and '.join(columns.text)}, {_choices(columns)}label from "
            f"{', '.join(columns.label)}{' (counted from 1)' * columns.first}: "
            f"{columns.kind.name}{classes}"
        )
    used = (*columns.text, *columns.choices, *columns.label, settings.soft_label or "")
    others = unused(rows.slice(0, SAMPLE), used, about_rows) if settings.text is None else []
    if others:
        yield (
            f"{name}: the texts in {' and '.join(others[:3])} are not used; tasks.text=COLUMN and "
            "tasks.text_pair=COLUMN choose others"
        )


def _choices(columns: Columns) -> str:
    return f"choices from {', '.join(columns.choices)}, " if columns.choices else ""
