"""The rows of a file: texts, and targets that stand for the labels of two models. Without torch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from distill import config
from distill.data.columns import LABELS, SAMPLE, check_texts, label_columns, text_columns
from distill.data.files import Table, read
from distill.data.kinds import Columns, Kind
from distill.data.labelled import label_column, usable_rows
from distill.data.labels import labels_of
from distill.errors import ConfigError, DataError, UserError
from distill.family.head import Head

KEY = "compare"
"""Stands for the command's options in messages of functions that other commands share."""

_SETTING = re.compile(rf"\b(?:{KEY}|tasks)\.(\w+)(=?)")
"""The same, and the one setting that `read` names itself."""

Texts = list[str] | list[tuple[str, str]]


@dataclass(frozen=True)
class Rows:
    """Rows of a file with one text or two."""

    table: Table
    text: tuple[str, ...]
    """The text column, or the two columns of a text pair."""

    def __len__(self) -> int:
        return int(self.table.rows.num_rows)

    def texts(self, numbers: Sequence[int] | np.ndarray) -> Texts:
        """The texts, or pairs of texts, of these rows."""
        part = self.table.rows.select(self.text).take(pa.array(numbers, pa.int64()))
        lists = [column.to_pylist() for column in part.columns]
        return lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))


@dataclass(frozen=True)
class Targets:
    """The labels of the rows. `values` is None where the file has none, and `note` states why."""

    label: tuple[str, ...] = ()
    values: np.ndarray | None = None
    note: str = ""


def read_rows(file: str, settings: config.Task, columns: Sequence[str]) -> Rows:
    """The rows of a file.

    Args:
        columns: text columns that B was made from, which are used if the file has them and the settings name none;
            empty if unknown.

    Raises:
        ConfigError: for a column that the file does not have, and where no column is a likely text.
        DataError: for a malformed file, and for a row without text.
    """
    with options():
        table = read(file, "FILE", settings.separator)
        if not table.rows.num_rows:
            raise DataError(f"{file}: got no rows; must have one or more; add rows")
        known = settings.text is None and set(columns) <= set(table.rows.column_names)
        text = tuple(columns) if known and columns else _text(settings, table, file)
        if settings.label is not None:
            label_columns(settings, table.rows, KEY, file)
        check_texts(table.rows, text, file)
        usable_rows(table, text)
    return Rows(table, text)


def _text(settings: config.Task, table: Table, file: str) -> tuple[str, ...]:
    label = settings.label if isinstance(settings.label, list) else [settings.label]
    others = [name for name in table.rows.column_names if name not in label]
    return text_columns(settings, table.rows.select(others), KEY, file)


def _label(settings: config.Task, sample: pa.Table, file: str) -> tuple[str, ...]:
    """The label column that is set, or a likely one; none if no column is likely."""
    try:
        return label_columns(settings, sample, KEY, file)
    except ConfigError:
        if settings.label is not None:
            raise
        return ()


def check_width(name: str, columns: Sequence[str], rows: Rows) -> None:
    """ConfigError unless the rows have as many texts as those that model `name` was made from, if these are known."""
    if columns and len(columns) != len(rows.text):
        raise ConfigError(
            f"--text: got {' and '.join(rows.text)}; must be {len(columns)} for {name}, which was made from "
            f"{' and '.join(columns)}; set --text COLUMN{' --text-pair COLUMN' * (len(columns) == 2)}"
        )


def targets(rows: Rows, settings: config.Task, kind: Kind, head: Head) -> Targets:
    """The targets of the rows, for outputs in the order of `head`.

    A column that is neither set nor named as a label is used only if it contains labels of the models.

    Raises:
        UserError: if the column that is set, or named as a label, has other values than labels of the models.
    """
    file = rows.table.files[0]
    with options():
        sample = rows.table.rows.slice(0, SAMPLE)
        label = _label(
            config.Task(label=settings.label, text=rows.text[0], text_pair=(*rows.text, None)[1]), sample, file
        )
        if not label:
            return Targets(note=f"No column of {file} contains labels of the models; --label COLUMN names one.")
        try:
            return Targets(label, _encoded(rows, label, kind, head))
        except UserError:
            if settings.label is None and label[0].lower() not in LABELS:
                return Targets(
                    note=f"{label[0]} is not used as the label, because its values are not labels of the models."
                )
            raise


def _encoded(rows: Rows, label: tuple[str, ...], kind: Kind, head: Head) -> np.ndarray:
    column = label_column(rows.table, Columns(rows.text, label, kind))
    numbered = tuple(map(str, range(head.outputs)))
    try:
        named = replace(head, labels=head.labels or numbered)
        spelled = labels_of(config.Task(), kind, {"train": column}, named, KEY).spelled
    except ConfigError as error:
        got = error.messages[0].partition(": ")[2].partition(";")[0]
        names = ", ".join(head.labels[:20]) or f"{', '.join(numbered[:20])}, because neither model names its outputs"
        raise DataError(
            f"{KEY}.label: {got} in column {', '.join(label)}; must be labels of the models: {names}; rename them in "
            f"the file, or set {KEY}.label=COLUMN"
        ) from error
    return kind.encode(column, spelled, rows.table.where, f"{KEY}.label")


@contextmanager
def options() -> Iterator[None]:
    """Name the command's options in messages of user errors, e.g. `--text-pair` in place of a setting."""
    try:
        yield
    except UserError as error:
        raise type(error)([_SETTING.sub(_option, message) for message in error.messages]) from error


def _option(match: re.Match[str]) -> str:
    return f"--{match[1].replace('_', '-')}{' ' if match[2] else ''}"
