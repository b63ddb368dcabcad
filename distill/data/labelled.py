"""The labelled rows of a task, from tables to targets: checked, divided into splits, without leaks. Without torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distill import config
from distill.data import class_weights
from distill.data.chosen import described, written_as_text
from distill.data.columns import columns_of, flags_of
from distill.data.decisions import FALSE, TRUE
from distill.data.files import Table
from distill.data.header import check_first_row
from distill.data.kind_of import stated_of
from distill.data.label_names import check_labels
from distill.data.labels import labels_of
from distill.data.likely_labels import with_likely_labels
from distill.data.marked import with_places
from distill.data.meant import as_meant
from distill.data.several_types import check_types
from distill.data.soft_labels import soft_column, soft_outputs, without
from distill.data.splits import (
    DEVELOPMENT,
    Split,
    check_enough,
    check_hidden,
    developed,
    divided,
    repeated,
    targets_of,
    with_any_label,
    with_labels,
    without_leaks,
)
from distill.data.stated_beside import check_numbers
from distill.data.task import Task
from distill.data.task_types import TASK_TYPES, Columns, TaskType, flat, labelled
from distill.data.task_types.question_answering import ALWAYS, answerable
from distill.data.task_types.task_type import OPTIONS, SOFT, check_texts, is_list
from distill.data.task_types.token_classification import TOKEN_CLASSIFICATION
from distill.data.task_types.written import names as label_names
from distill.data.task_types.written import whole
from distill.data.unlabelled import check_prompts, completed
from distill.data.usual_columns import USUAL
from distill.data.vectors import prompts_of, said, scaled
from distill.errors import ConfigError, DataError
from distill.models.families.head import Head
from distill.models.families.record import TEXTS, TOKENS, VECTORS
from distill.runtime import quoting

LONGEST = 1_000_000
"""Maximum characters of a text. A longer one is most likely several rows, joined by a missing quote."""

_AT_ONCE = 8192
"""Rows whose texts are in memory at once."""


@dataclass(frozen=True)
class Labelled:
    """A task and its rows."""

    task: Task
    train: Split | None
    development: dict[str, Split]
    """Splits on which choices are made: a part of the training rows, or the validation splits if there is a test split,
    or if the training rows have too few labels."""
    reported: dict[str, Split]
    """Splits on which scores are reported: the test split, else the validation splits."""
    notes: tuple[str, ...] = field(default=())
    """Choices and rows that were left out, in lines for the user."""


def labelled_rows(
    name: str,
    settings: config.Task,
    tables: Mapping[str, Table],
    head: Head | None,
    key: str,
    ignorable: Sequence[str] = (),
) -> Labelled:
    """The rows of a task whose splits `tables` has, `train` first if it is there.

    Args:
        head: the classifier of the teacher, by whose names labels are ordered; None without.
        key: setting of the task, e.g. `tasks`, for messages.
        ignorable: settings that are for all tasks, and are left out for kinds of tasks that have none.

    Raises:
        ConfigError: for settings that do not fit the files, and for labels that are not those of the head.
        DataError: for rows that cannot be used.
    """
    number = (
        head is not None and (head.outputs, head.architecture) == (1, TEXTS) and head.problem in (None, "regression")
    )
    tags = head is not None and head.architecture == TOKENS
    implied = "regression" if number else TOKEN_CLASSIFICATION.name if tags else None
    of_texts = head is not None and head.architecture == TEXTS
    flags = flags_of(head, next(iter(tables.values())).rows) or None
    stated = replace(settings, kind=settings.kind or implied, label=settings.label or flags)
    meant = as_meant(name, stated, tables, key, of_texts)
    made, as_read = list[str](), tables
    tables = with_likely_labels(settings, meant.tables, head, made, name, key)
    first = next(iter(tables.values()))
    known, tables, paired = completed(settings, tables, head, key)
    columns = known or columns_of(settings, first.rows, head, key, first.files[0], first.classes)
    _check_types(as_read, columns, settings.soft_label)
    check_first_row(first.rows, USUAL, first.files[0])
    prompts = tuple(settings.prompts or ()) or prompts_of(columns.kind, head)
    prompted = said(name, columns.text, prompts, settings.prompts is not None)
    head = None if head is None or head.architecture == VECTORS else head  # an embedder has no labels
    unused = [each for each in ignorable if getattr(settings, each) and each not in columns.kind.settings]
    nothing: dict[str, Any] = dict.fromkeys(unused)
    settings = replace(settings, **nothing)
    _check_settings(settings, columns.kind, key)
    for split, table in tables.items():
        _check_columns(table, columns, key, split == "train" and known is not None)
    if paired:
        check_prompts(settings, prompts, key)
    given, ready = tables, {split: prepared(table, columns) for split, table in tables.items()}
    marked = [f"{split}: {line}" for split, (_, said) in ready.items() for line in said]
    tables = {split: table for split, (table, _) in ready.items()}
    for table in tables.values():
        check_texts(table.rows, columns.text, ", ".join(table.files))
    joined, remarks = read_labels(settings, tables, columns, head, key)
    numbered = () if columns.flagged else first.classes(columns.label[0])
    labels = labels_of(settings, columns.kind, joined, head, key, columns.flagged, numbered)
    check_numbers(first.rows, columns, labels, key)
    if columns.kind.named and settings.labels is None and head is None:
        check_labels(labels.names, columns, first, key, [*meant.notes, *remarks])
    splits, softened = dict[str, Split](), list[str]()
    for split, table in tables.items():
        targets = columns.kind.encode(joined[split], labels.spelled, table.where, f"{key}.label")
        _check_range(settings.range, targets, table)
        content = table.rows.select([*columns.text, *columns.kind.layout.hidden])
        content = content.append_column("label", _column(targets))
        soft = soft_outputs(settings, columns, labels, given[split], table, key) if split == "train" else None
        if soft is not None:
            content = content.append_column(SOFT, soft_column(soft))
            count = int((~without(soft)).sum())
            softened.append(
                f"{name}: soft labels from {settings.soft_label} for {count:,} of {len(soft):,} rows of train"
            )
        splits[split] = Split(content, usable_rows(table, columns.text))
    remarks = [f"{name}: {remark}" for remark in (*written_as_text(columns, meant.lists), *paired, *marked, *remarks)]
    chosen = described(name, settings, columns, labels, first.rows if known is None else tables["train"].rows)
    left_out = [f"{name}: tasks.{each} is not used, as {columns.kind.name} has none" for each in unused]
    notes = [*meant.notes, *made, *chosen, *prompted, *remarks, *labels.notes, *softened, *left_out]
    splits = with_any_label(splits, settings, columns.kind, labels.names, notes, name)
    if not settings.rows:
        check_hidden(splits, tables, columns.kind, labels.names, key)
    splits = {s: part if s == "train" else with_labels(part, notes, f"{name} {s}") for s, part in splits.items()}
    _check_scored(splits, made, settings, key)
    given_splits, splits = splits, _apart(splits, columns, settings, tables, notes, name, made_up=bool(made))
    if head is not None:
        notes += _seen(name, splits.keys() - given_splits.keys(), key)
    labels_in = next((part for part in splits.values() if labelled(targets_of(part)).any()), None)
    ends = _range(settings.range, labels_in) if "range" in columns.kind.settings else None
    if columns.kind.scaled and ends is not None:
        splits = {split: replace(part, table=scaled(part.table, ends)) for split, part in splits.items()}
    task = Task(
        name,
        columns.kind,
        columns.text,
        labels.names,
        tuple(settings.metrics or columns.kind.metrics),
        ends,
        settings.threshold or _threshold(columns.kind, splits, notes, name),
        prompts,
        columns.choices,
        settings.in_headline,
        class_weights.checked(settings.class_weight, labels.names, labels.spelled, f"{key}.class_weight"),
    )
    validation = {s: part for s, part in splits.items() if s not in ("train", "test", DEVELOPMENT)}
    reported = {"test": splits["test"]} if "test" in splits else validation
    development = {DEVELOPMENT: splits[DEVELOPMENT]} if DEVELOPMENT in splits else validation or reported
    return Labelled(task, splits.get("train"), development, reported, tuple(notes))


def _apart(
    splits: dict[str, Split],
    columns: Columns,
    settings: config.Task,
    tables: Mapping[str, Table],
    notes: list[str],
    name: str,
    made_up: bool,
) -> dict[str, Split]:
    """The splits without leaks, and with rows that are set aside for validation and for choices.

    Of a published data set, the splits are used as they are but for leaks.

    made_up: whether the training rows have no labels of their own, so that nothing is chosen by them.
    """
    if settings.rows:
        splits = without_leaks(splits, columns, settings.drop_leaked is not False, notes, name)
        return developed(splits, columns, notes, name, made_up)
    notes += repeated(splits["train"], columns, name) if "train" in splits else ()
    # Leaks first: a row of the test file must not be set aside.
    kept = without_leaks(splits, columns, settings.drop_leaked is not False, notes, name)
    leaked = len(splits["train"].rows) - len(kept["train"].rows) if "train" in splits else 0
    splits = developed(divided(kept, columns, notes, name), columns, notes, name, made_up)
    check_enough(splits, tables, columns.kind, leaked)
    return splits


def _check_scored(splits: Mapping[str, Split], made: Sequence[str], settings: config.Task, key: str) -> None:
    """Raise ConfigError where models would be scored on training rows whose labels were `made` up."""
    if made and not {*splits} - {"train", DEVELOPMENT}:
        raise ConfigError(
            f"{key}.test: got nothing, and {settings.soft_label} alone in the training rows, which cannot score a "
            f"model; must be a file with labels; set {key}.test=FILE or {key}.validation=FILE"
        )


def _check_settings(settings: config.Task, task_type: TaskType, key: str) -> None:
    """Raise ConfigError for settings of another kind of task."""
    unfit = [metric for metric in settings.metrics or () if metric not in task_type.all_metrics]
    if unfit:
        raise ConfigError(
            f"{key}.metrics: got {', '.join(unfit)}; must be of {', '.join(task_type.all_metrics)} for "
            f"{task_type.name}; choose from these, or set {key}.kind"
        )
    for name in OPTIONS:
        if getattr(settings, name) and name not in task_type.settings:
            other = next(each.name for each in TASK_TYPES.values() if name in each.settings)
            raise ConfigError(
                f"{key}.{name}: got {getattr(settings, name)}; must be left out for {task_type.name}; leave it out, or "
                f"set {quoting.setting(f'{key}.kind', other)}"
            )


def _check_types(tables: Mapping[str, Table], columns: Columns, soft_label: str | None) -> None:
    """Raise DataError for a column that is used and has values of several types. `tables`: as they were read, because
    what is made of them is text."""
    for table in tables.values():
        check_types(table.rows, (*columns.text, *columns.choices, *columns.label, soft_label))


def _check_columns(table: Table, columns: Columns, key: str, alone: bool = False) -> None:
    """`alone`: whether the table may have single texts."""
    wanted = (*columns.text, *columns.choices, *columns.label)
    missing = [name for name in wanted if name not in table.rows.column_names]
    where = ", ".join(table.files)
    if missing:
        raise DataError(
            f"{where}: got columns {', '.join(table.rows.column_names)}; must have {', '.join(missing)}, as the "
            f"{'validation rows do, or one column of texts alone' if alone else 'training rows do'}; add or rename it"
        )
    for name in columns.label:
        task_type = TASK_TYPES["classification"] if columns.flagged else columns.kind
        given = table.rows[name].type
        alone = (
            columns.kind is TASK_TYPES["classification"] and is_list(given) and not pa.types.is_nested(given.value_type)
        )
        if not task_type.accepts(given) and not alone:
            raise DataError(
                f"{where}: got {given} in column {name}; must be {task_type.form} for {columns.kind.name}; "
                f"convert it, or set {key}.kind or {key}.label"
            )


def prepared(table: Table, columns: Columns) -> tuple[Table, list[str]]:
    """The table as `label_column` takes it, and what is to be said about the places of spans."""
    if columns.kind.prepare is None:
        return table, []
    rows, remarks = with_places(table.rows, columns, table.where)
    return replace(table, rows=columns.kind.prepare(rows, columns, table.where)), remarks


def read_labels(
    settings: config.Task, tables: Mapping[str, Table], columns: Columns, head: Head | None, key: str
) -> tuple[dict[str, pa.ChunkedArray], list[str]]:
    """Split -> column of labels as `TaskType.encode` takes it, and how labels were read, in lines for the user.

    Args:
        tables: as from `prepared`.
        head, key: as for `labelled_rows`.

    Raises:
        ConfigError: for labels that could be two things.
    """
    joined = {split: label_column(table, columns) for split, table in tables.items()}
    first = next(iter(tables.values()))
    # Labels of a published data set are used as they are, so that -1 of its test rows is refused with its row.
    if columns.flagged or settings.rows or columns.kind.read is None:
        return joined, []
    return columns.kind.read(joined, stated_of(settings, head, columns.label, key, first.files[0], first.classes))


def _seen(name: str, aside: Collection[str], key: str) -> list[str]:
    """A note on a given model that may know rows which were set `aside`, in splits of these names."""
    if {*aside} - {DEVELOPMENT}:
        return [
            f"{name}: if the given model was trained on rows of this file, it has seen rows that are set aside. Its "
            f"score is then too high, and what students retain of it too low; set {key}.test=FILE to rows that it has "
            "not seen"
        ]
    return [
        f"{name}: if the given model was trained on rows of this file, it has seen the rows on which choices are made. "
        f"What students retain is then too low there; set {key}.development=FILE to rows that it has not seen"
    ] * (DEVELOPMENT in aside)


def label_column(table: Table, columns: Columns) -> pa.ChunkedArray:
    """The label column [rows]. Of several columns of 0 and 1, the names of the columns that are 1."""
    if not columns.flagged:
        return table.rows[columns.label[0]]
    alone = len(columns.label) == 1  # an empty cell then says nothing about the row
    rows = zip(*(_flags(table, name, alone) for name in columns.label), strict=True)
    sets = [[n for n, f in zip(columns.flagged, row, strict=True) if f] for row in rows]
    missing = label_names(table.rows[columns.label[0]]).is_null().to_pylist() if alone else [False] * len(sets)
    known = [None if empty else each for each, empty in zip(sets, missing, strict=True)]
    return pa.chunked_array([pa.array(known, pa.list_(pa.string()))])


def _flags(table: Table, name: str, may_be_empty: bool) -> np.ndarray:
    values = pc.utf8_lower(whole(label_names(table.rows[name])))
    yes: np.ndarray = pc.is_in(values, pa.array(TRUE)).to_numpy()
    no = pc.is_in(values, pa.array(FALSE)).to_numpy()
    known = yes | no | (values.is_null().to_numpy() & may_be_empty)
    if not known.all():
        row = int(np.flatnonzero(~known)[0])
        raise DataError(
            f"{table.where(row)}: got {table.rows[name][row].as_py()!r} in {name}; must be 0 or 1; correct the row"
        )
    return np.asarray(yes)


def _column(targets: np.ndarray) -> pa.Array:
    if targets.dtype == object:
        ends = np.cumsum([0, *map(len, targets)])
        return pa.ListArray.from_arrays(ends.astype(np.int32), pa.array(flat(targets)))
    if targets.ndim == 1:
        return pa.array(targets)
    return pa.FixedSizeListArray.from_arrays(pa.array(targets.ravel()), targets.shape[1])


def usable_rows(table: Table, columns: Sequence[str]) -> np.ndarray:
    """[rows] numbers of all rows. Raises DataError for the first row without text, or with a text that is too long."""
    empty = np.ones(table.rows.num_rows, np.bool_)
    for column in columns:
        values = table.rows[column]
        if values.null_count:
            row = pc.index(pc.is_null(values), True).as_py()
            raise DataError(f"{table.where(row)}: got null in {column}; must be text; remove the row")
        long = pc.greater(pc.utf8_length(values), LONGEST)
        if (row := pc.index(long, True).as_py()) >= 0:
            raise DataError(
                f"{table.where(row)}: got a text of {len(values[row].as_py()):,} characters in {column}; must be at "
                f"most {LONGEST:,}; check for a missing quote, or split the text"
            )
        # Part by part, because a trimmed copy of all texts may not fit into memory.
        for start in range(0, len(values), _AT_ONCE):
            trimmed = pc.utf8_trim_whitespace(values.slice(start, _AT_ONCE))
            empty[start : start + _AT_ONCE] &= pc.equal(pc.utf8_length(trimmed), 0).to_numpy()
    if empty.any():
        row = int(np.flatnonzero(empty)[0])
        raise DataError(f"{table.where(row)}: got no text in {' or '.join(columns)}; must be text; remove the row")
    return np.arange(table.rows.num_rows)


def _check_range(allowed: list[float] | None, targets: np.ndarray, table: Table) -> None:
    if allowed is None:
        return
    low, high = allowed
    bad = np.flatnonzero((targets < low) | (targets > high))
    if len(bad):
        raise DataError(
            f"{table.where(bad[0])}: got label {targets[bad[0]]:g}; must be a number from {low:g} to {high:g}; correct "
            "the row"
        )


def _range(allowed: list[float] | None, train: Split | None) -> tuple[float, float] | None:
    if allowed is not None:
        return float(allowed[0]), float(allowed[1])
    if train is None:
        return None
    values = targets_of(train)
    return float(np.nanmin(values)), float(np.nanmax(values))


def _threshold(task_type: TaskType, splits: Mapping[str, Split], notes: list[str], name: str) -> float:
    """The probability above which there is no answer: without such questions in the training rows, never."""
    if not task_type.extractive:
        return 0.5
    targets = targets_of(splits["train"] if "train" in splits else next(iter(splits.values())))
    given = targets[labelled(targets)]
    share = 1 - float(answerable(given).mean())
    if share == 0:
        notes.append(f"{name}: every training question has an answer in its context, so the model always answers")
        return ALWAYS
    notes.append(f"{name}: {100 * share:.0f}% of the training questions have no answer in their context")
    return 0.5
