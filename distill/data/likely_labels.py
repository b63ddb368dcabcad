"""Training rows that have soft labels alone: the most probable label of each stands in for its label. Without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from distill import config
from distill.data.files import Table
from distill.data.task_types import TASK_TYPES
from distill.data.task_types.soft import SUM_TOLERANCE, parsed
from distill.data.task_types.task_type import as_list, distinct, is_list, is_text
from distill.data.usual_columns import LABELS
from distill.errors import ConfigError
from distill.models.families.head import Head
from distill.models.families.record import TEXTS
from distill.runtime.quoting import setting

_KINDS = (None, "classification")
_AT_ONCE = 8192
"""Rows whose soft labels are in memory at once."""


def with_likely_labels(
    settings: config.Task, tables: Mapping[str, Table], head: Head | None, notes: list[str], name: str, key: str
) -> Mapping[str, Table]:
    """The tables of a classification, with labels of training rows that have none, if another split has labels.

    So the scores are not those of labels that were made up here. `notes` gets a line; `name` begins it.

    Raises:
        ConfigError: about the setting `key` of the task, for lists of probabilities whose order is unknown.
        DataError: for a row whose soft label is neither a list nor an object.
    """
    train, others = tables.get("train"), [table for split, table in tables.items() if split != "train"]
    soft, label = settings.soft_label, _label(settings, others)
    of_texts = head is None or (
        head.architecture == TEXTS and head.outputs > 1 and head.problem != TASK_TYPES["multi_label"].problem
    )
    if train is None or label is None or soft not in train.rows.column_names or not of_texts:
        return tables
    columns = train.rows.column_names
    if label in columns and not _is_empty(train.rows[label]):
        return tables
    known = {
        str(value) for table in others if label in table.rows.column_names for value in distinct(table.rows[label])
    }
    named = list(map(str, settings.labels or ()))
    inner = _inside(train.rows[soft].type)
    if inner is not None and not named:
        if is_list(inner) or not _may_be_shares(train.rows[soft], len(known)):
            return tables  # they may be vectors, or of choices
        raise ConfigError(
            f"{key}.labels: got nothing; must be the labels in the order of the probabilities in {soft}; set, in that "
            f"order, {setting(f'{key}.labels', sorted(known))}"
        )
    values = chain.from_iterable(part.to_pylist() for part in train.rows.select([soft]).to_batches(_AT_ONCE))
    likely = [_likely(row[soft], named, f"{train.where(number)}: got", str(soft)) for number, row in enumerate(values)]
    found = {*likely} - {None}
    if not found or not known >= found:
        return tables  # they may be of another kind, such as several labels
    made, given = pa.array(likely, pa.string()), others[0].rows[label].type
    made = made if is_text(given) else made.cast(given)
    rows = train.rows.drop_columns([label]) if label in columns else train.rows
    notes.append(f"{name} train: the rows have no {label}; the most probable label in {soft} stands in for it")
    return {**tables, "train": replace(train, rows=rows.append_column(label, made))}


def _label(settings: config.Task, others: Sequence[Table]) -> str | None:
    """The label column of the splits without soft labels; None without one column of single labels."""
    if settings.soft_label is None or settings.rows or settings.choices or settings.kind not in _KINDS or not others:
        return None
    rows = others[0].rows
    usual = {column.lower(): column for column in rows.column_names}
    label = settings.label or next((usual[name] for name in LABELS if name in usual), None)
    single = len(as_list(label)) == 1 and as_list(label)[0] in rows.column_names
    data_type = rows[as_list(label)[0]].type if single else pa.null()
    return as_list(label)[0] if is_text(data_type) or pa.types.is_integer(data_type) else None


def _inside(data_type: pa.DataType) -> pa.DataType | None:
    """The type in lists of numbers, or of lists of them; None for others, such as lists of labels with scores."""
    inner = data_type.value_type if is_list(data_type) else None
    return None if inner is None or pa.types.is_struct(inner.value_type if is_list(inner) else inner) else inner


def _may_be_shares(lists: pa.ChunkedArray, count: int) -> bool:
    """Whether the first list has a number for each of `count` labels, and a sum of 1."""
    first = next((row.as_py() for row in lists if row.is_valid), None)
    return first is not None and len(first) == count and abs(sum(each or 0.0 for each in first) - 1) < SUM_TOLERANCE


def _is_empty(column: pa.ChunkedArray) -> bool:
    if is_text(column.type):
        column = pc.if_else(pc.equal(pc.utf8_trim_whitespace(column), ""), None, column)
    return column.null_count == len(column)


def _likely(value: Any, labels: Sequence[str], start: str, name: str) -> str | None:
    """The most probable label; None for a row without probabilities, or with a list that no labels name."""
    found = parsed(value, start, name)
    if isinstance(found, list):
        found = dict(zip(labels, found, strict=True)) if len(labels) == len(found) else {}
    numbers = {label: each for label, each in (found or {}).items() if isinstance(each, int | float)}
    return max(numbers, key=lambda label: numbers[label], default=None)
