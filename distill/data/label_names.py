"""What the labels of a column may be called."""

from __future__ import annotations

import re
from collections.abc import Sequence

from distill.data.files import Table
from distill.data.task_types import Columns
from distill.data.task_types.sets import is_written, not_names
from distill.data.task_types.written import spelled_alike
from distill.errors import ConfigError, DataError
from distill.runtime import quoting

_QUOTES = ('""', "''", "\u2018\u2019", "\u201c\u201d", "``")
"""Quotes around a name."""

MOST_LABELS, SHARE = 20, 0.5
"""Unless they are listed, labels of more rows than the first number may be no more than this share of the rows."""


def check_labels(names: Sequence[str], columns: Columns, table: Table, key: str, notes: Sequence[str]) -> None:
    """Raise ConfigError or DataError for a column whose values are not labels. `notes`: the values that were left out
    of it."""
    label, file, rows = ", ".join(columns.label), table.files[0], table.rows.num_rows
    cell = next(filter(is_written, names), None)
    if cell is not None:
        raise not_names(cell, file, label)
    _check_spelling(names, label, file, key)
    fraction = next((name for name in names if re.fullmatch(r"[+-]?\d*\.\d+", name)), None)
    if fraction is not None and columns.kind.name == "multi_label":
        raise ConfigError(
            f"{key}.kind: got multi_label, and {fraction} in {label} of {file}; must be regression for numbers, or "
            f"list its labels in {key}.labels; set {key}.kind=regression"
        )
    if len(names) < 2:
        raise DataError(
            f"{file}: got {f'only the label {names[0]!r}' if names else 'no label'} in {label}"
            f"{''.join(f' ({note})' for note in notes)}; must be two labels or more; add rows, or set "
            f"{key}.label=COLUMN"
        )
    if len(names) > max(MOST_LABELS, SHARE * rows):
        raise ConfigError(
            f"{key}.label: got {label}, with {len(names):,} different labels in {rows:,} rows of {file}; must be a "
            f"column of labels or numbers; set {key}.label=COLUMN (of {', '.join(table.rows.column_names)})"
        )


def _check_spelling(names: Sequence[str], label: str, file: str, key: str) -> None:
    """Raise ConfigError for two labels that may be one in two spellings, and DataError for labels in quotes."""
    twins = dict[str, str]()
    for name in names:
        if (other := twins.setdefault(spelled_alike(name), name)) != name:
            raise ConfigError(
                f"{key}.labels: got nothing, and {label} of {file} has {other!r} and {name!r}; must be known whether "
                "these are one label; write it in one way, or state that they are two; set "
                f"{quoting.setting(f'{key}.labels', list(names))}"
            )
    formulas = all(re.fullmatch('="?[^"]*"?', name) or name.startswith("'") for name in names)
    if names and (formulas or all(len(name) > 1 and name[0] + name[-1] in _QUOTES for name in names)):
        raise DataError(
            f"{file}: got {names[0]} as a label in {label}, and quotes around all others; must be without quotes; "
            'write the file again as CSV with the quotes "'
        )
