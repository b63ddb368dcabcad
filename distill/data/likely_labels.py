"""Training rows that have soft labels alone: the most probable label of each stands in for its label. Without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from distill import config
from distill.data.files import Table
from distill.data.task_types import TASK_TYPES
from distill.data.task_types.soft import SUM_TOLERANCE, from_text, parsed
from distill.data.task_types.task_type import as_list, distinct, is_text
from distill.data.task_types.written import spelled_alike
from distill.data.usual_columns import LABELS, usual_name
from distill.errors import ConfigError
from distill.models.families.head import Head
from distill.models.families.record import TEXTS
from distill.runtime.quoting import setting

_KINDS = (None, "classification")
_AT_ONCE = 8192
"""Rows whose soft labels are in memory at once."""
_SHOWN = 20
"""Maximum number of labels in a message."""


def with_likely_labels(
    settings: config.Task, tables: Mapping[str, Table], head: Head | None, notes: list[str], name: str, key: str
) -> Mapping[str, Table]:
    """The tables of a classification, with labels of training rows that have none, if another split has labels.

    So the scores are not those of labels that were made up here. `notes` gets a line; `name` begins it.

    Raises:
        ConfigError: about the setting `key` of the task, for lists of probabilities whose order is unknown, and for a
            label that neither the settings, nor the head, nor another split has.
        DataError: for a row whose soft label is neither a list nor an object.
    """
    train, others = tables.get("train"), [table for split, table in tables.items() if split != "train"]
    soft, label = settings.soft_label, _label(settings, others)
    of_texts = head is None or (
        head.architecture == TEXTS and head.outputs > 1 and head.problem != TASK_TYPES["multi_label"].problem
    )
    if train is None or label is None or soft not in train.rows.column_names or not of_texts:
        return tables
    if _has_labels(settings, train.rows, others[0].rows, label):
        return tables
    known = {
        str(value) for table in others if label in table.rows.column_names for value in distinct(table.rows[label])
    }
    named = list(map(str, settings.labels or ()))
    stated = named or ([] if head is None else [*head.labels])
    spelled = _spelled(known, stated)
    if not named and (shares := _first_list(train.rows[soft])) is not None:
        if not _may_be_shares(shares, {len(known), len(spelled)}):
            return tables  # they may be vectors, or of choices
        raise ConfigError(
            f"{key}.labels: got nothing; must be the labels in the order of the probabilities in {soft}; set, in that "
            f"order, {setting(f'{key}.labels', sorted({*spelled.values()}))}"
        )
    values = chain.from_iterable(part.to_pylist() for part in train.rows.select([soft]).to_batches(_AT_ONCE))
    likely = [_likely(row[soft], named, f"{train.where(number)}: got", str(soft)) for number, row in enumerate(values)]
    if not known or not {*likely} - {None}:
        return tables
    found = {each: each if each in known else spelled.get(spelled_alike(each)) for each in likely if each is not None}
    if (unknown := next((each for each, label in found.items() if label is None), None)) is not None:
        place = f"{soft} of {train.where(likely.index(unknown))}"
        raise _unknown(unknown, place, known, f"{label} of {', '.join(others[0].files)}", stated, key)
    made = pa.array([None if each is None else found[each] for each in likely], pa.string())
    with suppress(pa.ArrowException):  # a name beside numbers stays a text
        made = made.cast(others[0].rows[label].type)
    rows = train.rows.drop_columns([label]) if label in train.rows.column_names else train.rows
    notes.append(f"{name} train: the rows have no {label}; the most probable label in {soft} stands in for it")
    return {**tables, "train": replace(train, rows=rows.append_column(label, made))}


def _unknown(label: str, place: str, known: set[str], column: str, stated: Sequence[str], key: str) -> ConfigError:
    """The error about the most probable label of a row, which is neither `known` from a column nor `stated`."""
    shown = ", ".join(sorted(known)[:_SHOWN])
    every = [*(stated or sorted(known)), label]
    mend = "" if label in stated else f", or set {setting(f'{key}.labels', every)}"
    return ConfigError(
        f"{key}.labels: got {label!r} as the most probable label in {place}; must be one of {shown}, as in {column}; "
        f"write it as there{mend}"
    )


def _spelled(known: set[str], stated: Sequence[str]) -> dict[str, str]:
    """Label, as from `spelled_alike` -> the label as the files with labels write it.

    Args:
        known: the labels in these files. They may be the numbers of the stated labels.
        stated: the labels of the settings or of the teacher. One that the files lack is written as here, if they have
            another one of them.
    """
    files = {spelled_alike(label): label for label in sorted(known)}
    others = {spelled_alike(label): label for label in stated}
    if others.keys() & files.keys():
        return others | files
    numbers = {spelled_alike(label): str(number) for number, label in enumerate(stated)}
    return numbers if "0" in known and known <= {*numbers.values()} else files


def _has_labels(settings: config.Task, rows: pa.Table, others: pa.Table, label: str) -> bool:
    """Whether training rows have labels in this column or, unless the settings name it, in another usual one that the
    other rows have too."""
    usual = [name for name in others.column_names if name.lower() in LABELS and name != settings.soft_label]
    names = [label] if settings.label is not None else [label, *usual]
    return any(name in rows.column_names and not _is_empty(rows[name]) for name in names)


def _label(settings: config.Task, others: Sequence[Table]) -> str | None:
    """The label column of the splits without soft labels; None without one column of single labels."""
    if settings.soft_label is None or settings.rows or settings.choices or settings.kind not in _KINDS or not others:
        return None
    rows = others[0].rows
    label = settings.label or usual_name(rows, LABELS)
    single = len(as_list(label)) == 1 and as_list(label)[0] in rows.column_names
    data_type = rows[as_list(label)[0]].type if single else pa.null()
    return as_list(label)[0] if is_text(data_type) or pa.types.is_integer(data_type) else None


def _first_list(column: pa.ChunkedArray) -> list[Any] | None:
    """The first soft label of a column, if it is a list of numbers, or of lists of them, or the text of one; None for
    others, such as lists of labels with scores."""
    first = next(filter(None, map(_decoded, column)), None)
    inner = first[0] if isinstance(first, list) and isinstance(first[0], list) else first
    if not isinstance(first, list) or any(isinstance(each, dict | tuple) for each in inner or ()):
        return None
    return first


def _decoded(value: pa.Scalar) -> Any:
    found = value.as_py()
    text = from_text(found)  # another text is refused with its row later
    return text.strip() if isinstance(text, str) else text


def _may_be_shares(numbers: Sequence[Any], counts: set[int]) -> bool:
    """Whether a list may have the probabilities of all labels: as many numbers as one of the `counts` of labels, whose
    sum is 1."""
    plain = all(each is None or isinstance(each, int | float) for each in numbers)
    return plain and len(numbers) in counts and abs(sum(each or 0.0 for each in numbers) - 1) < SUM_TOLERANCE


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
