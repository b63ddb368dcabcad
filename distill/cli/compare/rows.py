"""The rows of a file: texts, and targets that stand for the labels of two models. Without torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distill import config
from distill.cli.options import as_options
from distill.cli.texts import with_titles
from distill.data import usual_columns as usual
from distill.data.asked import asked
from distill.data.columns import columns_of, flags_of, label_columns, texts_of
from distill.data.files import Table, read
from distill.data.header import NoHeader
from distill.data.kind_of import QUERIES
from distill.data.labelled import label_column, prepared, read_labels, usable_rows
from distill.data.labels import labels_of
from distill.data.meant import accepted, untrained, with_lists
from distill.data.several_types import check_types
from distill.data.stated_beside import check_numbers, with_empty_spans, with_names
from distill.data.tagged_rows import with_lists_of_words
from distill.data.task_types import TASK_TYPES, Columns, TaskType
from distill.data.task_types.multiple_choice import check, choices_of
from distill.data.task_types.task_type import check_texts
from distill.data.task_types.token_classification import is_words
from distill.errors import ConfigError, DataError, UserError, reworded
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

_AT_ONCE = 4096
"""Rows whose texts are in memory at once."""


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

    def texts(self, numbers: np.ndarray) -> list[Any]:
        """What users pass to `Model.predict` for these rows; of embedders, pairs of texts."""
        part = self.table.rows.select([*self.text, *self.choices]).take(pa.array(numbers, pa.int64()))
        return asked(part, self.text, self.choices)

    def parts(self) -> Iterator[list[Any]]:
        """The texts of all rows, some at a time."""
        for start in range(0, len(self), _AT_ONCE):
            yield self.texts(np.arange(start, min(start + _AT_ONCE, len(self))))


@dataclass(frozen=True)
class Targets:
    """The labels of the rows. `values` is None where the file has none."""

    label: tuple[str, ...] = ()
    values: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    """How the labels were read, or why there are none, in lines."""


options = partial(reworded, lambda message: as_options(message, (KEY, "tasks"), OPTIONS, repeated=True))
"""Names the command's options in messages of user errors, e.g. `--text-pair` in place of a setting."""


@options()
def read_rows(
    file: str,
    settings: config.Task,
    columns: Sequence[str],
    choices: Sequence[str] = (),
    architecture: str = TEXTS,
    named: bool = True,
    head: Head | None = None,
) -> Rows:
    """The rows of a file.

    Args:
        columns, choices: columns that B was made from, which are used if the file has them and the settings name none;
            empty if unknown.
        architecture: of the models, by which the text may be a list of words, or have choices.
        named: whether the models output labels with names, which another column may have beside numbers.
        head: of a model whose labels may be columns of 0 and 1.

    Raises:
        ConfigError: for a column that the file does not have, and where no column is a likely text.
        DataError: for a malformed file, and for a row without text.
    """
    given, notes = read(file, "FILE", settings.separator), list[str]()
    table = given
    if architecture == VECTORS and settings.text is None:
        told, table = with_titles(given, TASK_TYPES["retrieval"])
        table = replace(table, about=told.about)
    if architecture == TOKENS:
        table = with_lists_of_words(settings, table, notes, file, untagged=True)
    stated = replace(settings, label=settings.label or flags_of(head, table.rows) or None)
    table = untrained(stated, table, notes, file)
    table = accepted(stated, with_lists(stated, table, architecture == TOKENS)[0], notes.append, file)
    table = with_empty_spans(table, notes, file)
    table = with_names(stated, {file: table}, notes, file)[file] if named else table
    if not table.rows.num_rows:
        raise DataError(f"{file}: got no rows; must have one or more; add rows")
    if settings.label is not None:
        label_columns(settings, table.rows, KEY, file)
    text, choices, _ = texts_of(settings, table.rows, columns, choices, architecture, KEY, file)
    check_types(given.rows, (*text, *choices))
    whole = _joined(table, text[0]) if architecture == TOKENS else table
    check_texts(whole.rows, text, file)
    usable_rows(whole, text)
    for row, found in enumerate(choices_of(table.rows, choices) if choices else ()):
        check(found, table.where(row), ", ".join(choices))
    if architecture == VECTORS and len(text) == 1:
        following = pa.array(np.roll(np.arange(table.rows.num_rows), -1))
        table = replace(table, rows=table.rows.append_column(NEXT, table.rows[text[0]].take(following)))
        text = (*text, NEXT)
    return Rows(table, text, choices, tuple(notes))


def _joined(table: Table, column: str) -> Table:
    """The table with lists of words as texts. DataError for a list with null."""
    words = table.rows[column]
    if not is_words(words.type):
        return table
    for row, value in enumerate(words.to_pylist()):
        if value is None or None in value:
            raise DataError(f"{table.where(row)}: got null in {column}; must be words; remove the row")
    texts = pc.binary_join(words.cast(pa.list_(pa.string())), " ")
    return replace(table, rows=table.rows.set_column(table.rows.column_names.index(column), column, texts))


def are_ranked(rows: Rows, settings: config.Task) -> bool:
    """Whether an embedder of these rows is a retriever in a run: they have queries, documents and their relevance. Rows
    without a label of numbers need the names of such texts."""
    first, second = rows.text
    known = config.Task(text=first, text_pair=second, label=settings.label)
    with suppress(UserError):  # of rows without a label
        kind = columns_of(known, rows.table.rows, Head(1, (), None, VECTORS), KEY, rows.table.files[0]).kind
        if kind.separate:  # else the likely label is another column
            return kind.grouped
    return [first.lower(), second.lower()] in QUERIES


@options()
def targets(
    rows: Rows, settings: config.Task, kind: TaskType, head: Head, order: Sequence[int] | None = None
) -> Targets:
    """The targets of the rows, for outputs in the order of `head`. `order`: for each of them, its output of B.

    A column that is neither set nor named as a label is used only if it contains labels of the models.

    Raises:
        UserError: if the column that is set, or named as a label, has other values than labels of the models.
    """
    table, file = rows.table, rows.table.files[0]
    none = Targets(notes=(f"No column of {file} contains labels of the models; --label COLUMN names one.",))
    pair = rows.text[1] if len(rows.text) == 2 else None
    known = config.Task(kind=kind.name, text=rows.text[0], text_pair=pair, choices=list(rows.choices) or None)
    try:
        columns = columns_of(replace(known, label=settings.label), table.rows, head, KEY, file, table.classes)
    except ConfigError as error:
        if settings.label is not None or isinstance(error, NoHeader):
            raise
        return none
    names = columns.label
    stated = settings.label is not None or names[0].lower() in LABELS.get(kind.architecture, usual.LABELS)
    if kind.choices and not stated:
        return none
    try:
        check_types(table.rows, names)
        encoded, remarks = _encoded(table, columns, head, order)
        if encoded.dtype.kind == "f" and (encoded == -1).all():
            why = "because it is -1 in each row, which seems to stand for hidden labels"
            return Targets(notes=(f"{names[0]} is not used as the label, {why}.",))
        return Targets(names, encoded, remarks)
    except UserError:
        if stated:
            raise
        why = "because its values are not labels of the models"
        return Targets(notes=(f"{names[0]} is not used as the label, {why}.",))


def _encoded(
    table: Table, columns: Columns, head: Head, order: Sequence[int] | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The targets of the rows, and how their labels were read."""
    kind, label, given = columns.kind, ", ".join(columns.label), label_column(table, columns)
    if kind.prepare is not None and not kind.accepts(given.type):
        raise DataError(
            f"{KEY}.label: got {given.type} in column {label}; must be {kind.form}; convert it, or set "
            f"{KEY}.label=COLUMN"
        )
    ready, marked = prepared(table, columns)
    try:
        read_as, remarks = read_labels(config.Task(), {"train": ready}, columns, head, KEY)
    except ConfigError as error:  # the command has no option that states the meaning of a label
        raise DataError(f"{error.messages[0].rpartition('; ')[0]}; write it as one of them") from error
    numbered, classes = tuple(map(str, range(head.outputs))), table.classes(columns.label[0])
    try:
        named = replace(head, labels=head.labels or (classes if len(classes) == head.outputs else numbered))
        labels = labels_of(config.Task(), kind, read_as, named, KEY)
    except ConfigError as error:
        got = error.messages[0].partition(": ")[2].partition(";")[0]
        names = ", ".join(head.labels[:20]) or f"{', '.join(numbered[:20])}, because neither model names its outputs"
        raise DataError(
            f"{KEY}.label: {got} in column {label}; must be labels of the models: {names}; rename them in the file, or "
            f"set {KEY}.label=COLUMN"
        ) from error
    check_numbers(table.rows, columns, labels, KEY)
    numbers = [note.replace("the teacher's", "A's") for note in labels.notes]
    if numbers and order is not None and [*order] != sorted(order):
        raise DataError(
            f"{KEY}.label: got numbers in column {label}, which A and B have for different labels ({numbers[0]}); must "
            "be names; write the names of the labels in the file"
        )
    encoded = kind.encode(read_as["train"], labels.spelled, table.where, f"{KEY}.label")
    return encoded, (*marked, *remarks, *numbers)
