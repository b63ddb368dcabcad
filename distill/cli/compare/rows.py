"""The rows of a file: texts, and targets that stand for the labels of two models. Without torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distill import config
from distill.cli.options import as_options
from distill.data import columns as usual
from distill.data.columns import SAMPLE, check_texts, choice_columns, flag_of, label_columns, text_columns
from distill.data.files import Table, read
from distill.data.kind_of import stated_of
from distill.data.labelled import label_column, usable_rows
from distill.data.labels import labels_of
from distill.data.marked import with_places
from distill.data.meant import accepted, with_lists
from distill.data.task_types import Columns, Kind
from distill.data.task_types.multiple_choice import check, choices_of, first_of, sizes_of
from distill.data.task_types.token_classification import is_words
from distill.errors import ConfigError, DataError, UserError
from distill.models.families.head import Head
from distill.models.families.record import ANSWERS, CHOICES, TEXTS, TOKENS, VECTORS

KEY = "compare"
"""Stands for the command's options in messages of functions that other commands share."""

OPTIONS = ("text", "text_pair", "choices", "label", "separator", "kind", "labels")
"""Settings in messages of these functions, which are options here."""

NEXT = "text of the next row"
"""Second text of a row where the vectors of single texts are compared."""

LABELS = {CHOICES: usual.ANSWERS, ANSWERS: usual.FOUND, TOKENS: (*usual.LABELS, *usual.TAGS)}
"""Architecture -> usual names of its labels, where they are not those of texts."""

Texts = list[Any]
"""Texts, pairs of texts, lists of words, or tuples of texts and a list of choices."""


@dataclass(frozen=True)
class Rows:
    """Rows of a file with one text or two, with lists of words, or with texts and choices."""

    table: Table
    text: tuple[str, ...]
    """The text column, or the two columns of a text pair."""
    choices: tuple[str, ...] = ()
    """The columns with the choices of each row."""
    notes: tuple[str, ...] = ()
    """Which rows were left out, in sentences."""

    def __len__(self) -> int:
        return int(self.table.rows.num_rows)

    def texts(self, numbers: Sequence[int] | np.ndarray) -> Texts:
        """What users pass to `Model.predict` for these rows; of embedders, pairs of texts."""
        part = self.table.rows.select([*self.text, *self.choices]).take(pa.array(numbers, pa.int64()))
        lists = [part[name].to_pylist() for name in self.text]
        lists += [choices_of(part, self.choices)] if self.choices else []
        return lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))


@dataclass(frozen=True)
class Targets:
    """The labels of the rows. `values` is None where the file has none, and `note` states why."""

    label: tuple[str, ...] = ()
    values: np.ndarray | None = None
    note: str = ""
    remarks: tuple[str, ...] = ()
    """How the labels were read, in lines."""


def read_rows(
    file: str,
    settings: config.Task,
    columns: Sequence[str],
    choices: Sequence[str] = (),
    architecture: str = TEXTS,
) -> Rows:
    """The rows of a file.

    Args:
        columns, choices: columns that B was made from, which are used if the file has them and the settings name none;
            empty if unknown.
        architecture: of the models, by which the text may be a list of words, or have choices.

    Raises:
        ConfigError: for a column that the file does not have, and where no column is a likely text.
        DataError: for a malformed file, and for a row without text.
    """
    with options():
        table, notes = read(file, "FILE", settings.separator), list[str]()
        table, _ = with_lists(settings, table, architecture == TOKENS)
        table = accepted(settings, table, notes.append, file)
        if not table.rows.num_rows:
            raise DataError(f"{file}: got no rows; must have one or more; add rows")
        stated = (settings.text, settings.text_pair, settings.choices) == (None, None, None)
        known = stated and columns and {*columns, *choices} <= {*table.rows.column_names}
        if known:
            text, choices = tuple(columns), tuple(choices)
        elif architecture == CHOICES:
            text, choices = choice_columns(settings, table.rows, KEY, file)
        else:
            text, choices = _text(settings, table, file, architecture), ()
        if settings.label is not None:
            label_columns(settings, table.rows, KEY, file)
        whole = _joined(table, text[0]) if architecture == TOKENS else table
        check_texts(whole.rows, text, file)
        usable_rows(whole, text)
        for row, found in enumerate(choices_of(table.rows, choices) if choices else ()):
            check(found, table.where(row), ", ".join(choices))
    if architecture == VECTORS and len(text) == 1:
        following = np.roll(np.arange(table.rows.num_rows), -1)
        table = replace(table, rows=table.rows.append_column(NEXT, table.rows[text[0]].take(pa.array(following))))
        text = (*text, NEXT)
    return Rows(table, text, tuple(choices), tuple(notes))


def _joined(table: Table, column: str) -> Table:
    """The table with lists of words as texts. DataError for a list with null."""
    words = table.rows[column]
    if not is_words(words.type):
        return table
    for row, value in enumerate(words.to_pylist()):
        if value is None or None in value:
            raise DataError(f"{table.where(row)}: got null in {column}; must be words; remove the row")
    texts = pc.binary_join(words.cast(pa.list_(pa.string())), " ")
    place = table.rows.column_names.index(column)
    return replace(table, rows=table.rows.set_column(place, column, texts))


def _text(settings: config.Task, table: Table, file: str, architecture: str) -> tuple[str, ...]:
    lists = (name for name in usual.WORD_LISTS if name in table.rows.column_names and is_words(table.rows[name].type))
    if architecture == TOKENS and settings.text is None and (words := next(lists, None)) is not None:
        return (words,)
    label = settings.label if isinstance(settings.label, list) else [settings.label]
    others = [name for name in table.rows.column_names if name not in label]
    return text_columns(settings, table.rows.select(others), KEY, file)


def _label(settings: config.Task, sample: pa.Table, file: str, kind: Kind) -> tuple[str, ...]:
    """The label column that is set, or a likely one; none if no column is likely."""
    if settings.label is None and kind.architecture in (CHOICES, ANSWERS):
        names = {name.lower(): name for name in sample.column_names}
        return tuple(names[name] for name in LABELS[kind.architecture] if name in names)[:1]
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
        texts = config.Task(label=settings.label, text=rows.text[0], text_pair=(*rows.text, None)[1])
        label = _label(texts, sample.drop_columns(list(rows.choices)), file, kind)
        if not label:
            return Targets(note=f"No column of {file} contains labels of the models; --label COLUMN names one.")
        try:
            values, remarks = _encoded(rows, label, kind, head, settings)
            return Targets(label, values, remarks=tuple(remarks))
        except UserError:
            if settings.label is None and label[0].lower() not in LABELS.get(kind.architecture, usual.LABELS):
                return Targets(
                    note=f"{label[0]} is not used as the label, because its values are not labels of the models."
                )
            raise


def _encoded(
    rows: Rows, label: tuple[str, ...], kind: Kind, head: Head, settings: config.Task
) -> tuple[np.ndarray, list[str]]:
    """The targets of the rows, and how their labels were read."""
    flag = flag_of(rows.table.rows, label, kind, head)
    columns, remarks = Columns(rows.text, label, kind, rows.choices, flag=flag), list[str]()
    column = label_column(rows.table, columns)
    if kind.prepare is not None:
        if not kind.accepts(column.type):
            raise DataError(
                f"{KEY}.label: got {column.type} in column {', '.join(label)}; must be {kind.form}; convert it, or set "
                f"{KEY}.label=COLUMN"
            )
        if kind.choices:
            columns = replace(columns, first=first_of(column, sizes_of(rows.table.rows, rows.choices)))
        table, remarks = with_places(rows.table.rows, columns, rows.table.where)
        column = kind.prepare(table, columns, rows.table.where)[label[0]]
    if kind.read is not None and len(label) == 1 and not flag:
        stated = stated_of(settings, head, label, KEY, rows.table.files[0], rows.table.classes)
        try:
            given, said = kind.read({"train": column}, stated)
        except ConfigError as error:  # the command has no option that states the meaning of a label
            raise DataError(f"{error.messages[0].rpartition('; ')[0]}; write it as one of them") from error
        column, remarks = given["train"], [*remarks, *said]
    numbered = tuple(map(str, range(head.outputs)))
    classes = rows.table.classes(label[0])
    try:
        named = replace(head, labels=head.labels or (classes if len(classes) == head.outputs else numbered))
        spelled = labels_of(config.Task(), kind, {"train": column}, named, KEY).spelled
    except ConfigError as error:
        got = error.messages[0].partition(": ")[2].partition(";")[0]
        names = ", ".join(head.labels[:20]) or f"{', '.join(numbered[:20])}, because neither model names its outputs"
        raise DataError(
            f"{KEY}.label: {got} in column {', '.join(label)}; must be labels of the models: {names}; rename them in "
            f"the file, or set {KEY}.label=COLUMN"
        ) from error
    return kind.encode(column, spelled, rows.table.where, f"{KEY}.label"), remarks


@contextmanager
def options() -> Iterator[None]:
    """Name the command's options in messages of user errors, e.g. `--text-pair` in place of a setting."""
    try:
        yield
    except UserError as error:
        lines = [as_options(message, (KEY, "tasks"), OPTIONS, repeated=True) for message in error.messages]
        raise type(error)(lines) from error
