"""Reads tables as their writers meant them: lists written as text, rows that an annotation tool rejects, and columns
that divide the rows into splits. Without torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distill import config
from distill.data.choice_forms import with_stems
from distill.data.decisions import (
    FALSE,
    TRUE,
    disputed,
    doubtful,
    is_about_a_row,
    rejected,
    statements,
    unapproved,
    unclear,
    unread,
)
from distill.data.files import Table
from distill.data.listed import listed, of_answers, of_choices, unwrapped, with_flags
from distill.data.marked import of_lists
from distill.data.split_names import SPLITS, split_of
from distill.data.stated_beside import name_columns, with_empty_spans, with_names
from distill.data.tagged_rows import check_words, with_lists_of_words
from distill.data.task_types.task_type import as_list, distinct, is_list, is_text
from distill.data.task_types.token_classification import TOKEN_CLASSIFICATION
from distill.data.usual_columns import (
    ANSWERS,
    CHOICES,
    FOUND,
    LABELS,
    SAMPLE,
    TAGS,
    TEXTS,
    WORD_LISTS,
    about_rows,
    named_columns,
)
from distill.errors import DataError

_BINARY = "_is_binary"
"""Column of Prodigy that is true for a decision about a proposed span, to accept or to reject."""
DIVIDING = (
    "split", "set", "subset", "partition", "fold", "usage", "data_split", "dataset_split", "_split", "train_test",
    "dataset", "phase", "part", "type", "data_type", "ml_use",
)  # fmt: skip
"""Usual names of a column of splits."""
PARTS = frozenset(("split", "set", "subset", "partition", "fold"))
"""Words in other names of such a column, as in `SemEval_set` and `fold_name`."""
FLAGS = {
    **dict.fromkeys(("is_valid", "is_validation", "is_val", "is_dev", "is_eval"), "validation"),
    **dict.fromkeys(("is_test", "is_heldout", "is_holdout"), "test"),
    **dict.fromkeys(("is_train", "is_training"), "train"),
}
"""Usual name of a column that says of each row whether it is in this split. A row not for training validates."""
UNLABELLED = ("", "unlabeled", "unlabelled", "unsup", "unsupervised", "none")
"""Values in a column of splits for rows without labels."""


@dataclass(frozen=True)
class Meant:
    tables: dict[str, Table]
    lists: frozenset[str]
    """Columns whose lists were written as text."""
    notes: tuple[str, ...]
    """Lines for the user on rows that were left out or divided."""


def as_meant(
    name: str, settings: config.Task, tables: Mapping[str, Table], key: str = "tasks", whole: bool = False
) -> Meant:
    """The tables of a task. Tables of a published data set are unchanged.

    Args:
        name: of the task, for notes.
        whole: whether the teacher labels whole texts, so that labels beside words are no tags.

    Raises:
        ConfigError: about the setting `key` of the task, for words that may have tags or classes.
    """
    if settings.rows:
        return Meant(dict(tables), frozenset(), ())
    notes = list[str]()
    worded: dict[str, Table] = {}
    for split, table in tables.items():
        worded[split] = with_lists_of_words(settings, table, notes, f"{name} {split}")
        if worded[split] is table and not whole:
            check_words(settings, table, key)
    read, lists = _with_lists(settings, worded)
    read = _divided(settings, read, notes, name)
    read = {split: accepted(settings, table, notes.append, f"{name} {split}") for split, table in read.items()}
    read = {split: with_empty_spans(table, notes, f"{name} {split}") for split, table in read.items()}
    read = with_names(settings, read, notes, name)
    return Meant(read, frozenset(lists), tuple(notes))


def stating(names: Iterable[str], label: str) -> list[str]:
    """Of the names of columns, those by which `as_meant` may read the rows or the column `label` otherwise."""
    known = {*DIVIDING, *FLAGS, *name_columns(label), _BINARY}
    return [name for name in names if name.lower() in known or is_about_a_row(name) or _speaks_of_splits(name)]


def _with_lists(settings: config.Task, tables: Mapping[str, Table]) -> tuple[dict[str, Table], set[str]]:
    """The tables as from `with_lists`, in which a column has lists in all if one of them shows that it has."""
    words = settings.kind == TOKEN_CLASSIFICATION.name
    each = {split: with_lists(settings, table, words) for split, table in tables.items()}
    lists = set[str]().union(*(found for _, found in each.values()))
    read = {split: table for split, (table, _) in each.items()}
    for split, table in read.items():
        if any(field.name in lists and is_text(field.type) for field in table.rows.schema):
            read[split], _ = with_lists(settings, tables[split], words, lists)
    return read, lists


def with_lists(
    settings: config.Task, table: Table, words: bool, known: Collection[str] = frozenset()
) -> tuple[Table, set[str]]:
    """The table with lists in place of the text of lists, and the columns where it had text.

    A column that the settings name as a text, or whose name is usual for one, stays text. It becomes lists if its name
    is usual for a list of words, if another column has a tag for each of its values in most rows, or with `words`.

    Args:
        words: whether each word of a text has a tag.
        known: columns that have lists in another table.
    """
    rows, found = with_stems(table.rows), set[str]()
    names = [name for name in rows.column_names if name != settings.soft_label]
    stated, usual = {settings.text, settings.text_pair}, {*TEXTS} - {*WORD_LISTS}
    texts = [name for name in names if name in stated or name.lower() in usual]
    for name in sorted(names, key=texts.__contains__):  # texts last, beside the lists of the others
        values = of_choices(rows[name]) if name.lower() in CHOICES else None
        values = of_answers(rows[name]) if values is None and name.lower() in FOUND else values
        values = listed(rows[name], name in known) if values is None else values
        if name in texts and not words and values is not None and not _is_beside_a_list(values, rows):
            continue
        found |= {name} if values is not None and is_text(rows[name].type) else set()
        values = unwrapped(rows[name]) if values is None and name not in texts else values
        values = with_flags(rows[name]) if values is None and _is_label(settings, name) else values
        values = of_lists(rows[name], name, table.where, _is_label(settings, name)) if values is None else values
        if values is not None:
            rows = rows.set_column(rows.column_names.index(name), name, values)
    return (table if rows is table.rows else replace(table, rows=rows)), found


def _is_label(settings: config.Task, name: str) -> bool:
    """Whether a column is the label, by the settings or else by its name."""
    stated = {*map(str, as_list(settings.label))}
    return name in stated if stated else name.lower() in {*LABELS, *TAGS}


def _is_beside_a_list(values: pa.ChunkedArray, rows: pa.Table) -> bool:
    """Whether a column of a table has lists of tags, of which most are as long as these."""
    sizes = pc.list_value_length(values)
    lists = (name for name in rows.column_names if is_list(rows[name].type))
    others = [pc.list_value_length(rows[name]) for name in lists if name.lower() in TAGS or _has_outside(rows[name])]
    same = (pc.and_(pc.equal(other, sizes), pc.greater(sizes, 0)) for other in others)
    return any((pc.mean(each).as_py() or 0) > 0.5 for each in same) and (pc.max(sizes).as_py() or 0) > 1


def _has_outside(column: pa.ChunkedArray) -> bool:
    """Whether lists have the tag `O`."""
    return is_text(column.type.value_type) and pc.index(pc.list_flatten(column), "O").as_py() >= 0


def accepted(settings: config.Task, table: Table, log: Callable[[str], None], name: str) -> Table:
    """The rows that no column states to be rejected. `log` gets a line about the others; `name` begins it.

    Raises:
        DataError: if all rows are rejected.
    """
    named = named_columns(settings)
    _check_binary(table)
    for column in table.rows.column_names:
        values, beside = table.rows[column], _labelled_beside(settings, table.rows, column)
        flags = None if column in named else rejected(values, column)
        if beside and column not in named and (count := disputed(values, column)):
            log(f"{name}: {count:,} of {len(values):,} rows are used although some annotators reject them by {column}")
        if flags is not None and flags.any() and beside:
            why = statements(values, column, flags)
            if flags.all():
                raise DataError(
                    f"{', '.join(table.files)}: got {column} {why} in every row; must be accepted rows; remove the "
                    "column to use them"
                )
            log(
                f"{name}: {int(flags.sum()):,} of {len(flags):,} rows are left out, because their {column} is {why}; "
                "without this column they are used"
            )
            table = table.only(~flags)
        elif column not in named and (line := _used_although(values, column, beside)) is not None:
            log(f"{name}: {line}")
    return table


def _used_although(values: pa.ChunkedArray, column: str, beside: bool) -> str | None:
    """What is said about a column by which rows are not left out, and may be meant to be; None for other columns.

    `beside`: whether the label is in another column.
    """
    if beside and (maybe := doubtful(values, column)) is not None:
        return (
            f"{int(maybe.sum()):,} of {len(maybe):,} rows are used although their {column} is "
            f"{statements(values, column, maybe)}"
        )
    if beside and (other := unread(values, column)) is not None:
        return f"no row is left out by {column}, as it is {other} in some rows, and not true or false"
    if waiting := unapproved(values, column):
        return f"{waiting:,} of {len(values):,} rows are used although their {column} is false"
    return None


def _check_binary(table: Table) -> None:
    """Raise DataError for decisions of Prodigy about single spans, whose texts may have others that are not marked."""
    names = table.rows.column_names
    spans = any(
        is_list(table.rows[name].type) and pa.types.is_struct(table.rows[name].type.value_type) for name in names
    )
    if spans and _BINARY in names and _is_true(table.rows[_BINARY]):
        raise DataError(
            f"{', '.join(table.files)}: got {_BINARY} true, a decision about a single span of each text; must have "
            "all spans of a text, because other words would count as outside of spans; mark them with ner.manual"
        )


def _is_true(column: pa.ChunkedArray) -> bool:
    """Whether some values of a column are true, also written as text."""
    if not pa.types.is_boolean(column.type) and not is_text(column.type):
        return False
    return pc.any(pc.equal(pc.utf8_lower(column.cast(pa.string())), "true")).as_py() is True


def _labelled_beside(settings: config.Task, rows: pa.Table, column: str) -> bool:
    """Whether the label is in another column than this one, which may else be the label itself."""
    usual = {*LABELS, *TAGS, *ANSWERS, *FOUND}
    stated = settings.label is not None or about_rows(column)  # which no run takes for the label
    return stated or bool(usual & {name.lower() for name in rows.column_names if name != column})


def _divided(settings: config.Task, tables: dict[str, Table], notes: list[str], name: str) -> dict[str, Table]:
    """The tables, with `train` divided by a column that states the split of each row, if there is no other file."""
    train = tables.get("train")
    found = None if train is None else _dividing(settings, train, notes)
    if train is None or found is None:
        return tables
    column, splits = found
    parts = {
        split: np.asarray(pc.fill_null(pc.equal(splits, split), False)) for split in ("train", "validation", "test")
    }
    counted = ", ".join(f"{int(flags.sum()):,} {split}" for split, flags in parts.items() if flags.any())
    if len(tables) > 1:
        notes.append(f"{name} train: column {column} states splits ({counted}), and all of these rows are used")
        return tables
    others = pc.unique(train.rows[column].filter(pc.is_null(splits))).to_pylist() if splits.null_count else []
    shown = " or ".join(sorted(repr(other or "") for other in others)[:5])
    left = f"; rows in which it is {shown} are left out ({splits.null_count:,})" if others else ""
    notes.append(f"{name}: column {column} divides the rows ({counted}){left}")
    return {split: train.only(flags) for split, flags in parts.items() if flags.any()}


def untrained(settings: config.Task, table: Table, notes: list[str], name: str) -> Table:
    """The test rows of a table, or else its validation rows, if a column states the split of each row; else all."""
    if (found := _dividing(settings, table, notes)) is None:
        return table
    column, splits = found
    split = "test" if pc.index(splits, "test").as_py() >= 0 else "validation"
    flags = np.asarray(pc.fill_null(pc.equal(splits, split), False))
    notes.append(
        f"{name}: the {int(flags.sum()):,} {split} rows of column {column} are used, and not the other "
        f"{int((~flags).sum()):,}"
    )
    return table.only(flags)


def _dividing(settings: config.Task, table: Table, notes: list[str]) -> tuple[str, pa.Array] | None:
    """The column that states the split of each row, and the splits [rows]; null for a row of another one. None without
    such a column.

    A column under another name than the usual ones is used if it speaks of splits, has nothing else, and is the only
    one. Of other such columns, which may be the label, `notes` gets a line.

    Raises:
        DataError: for a column with training rows and with others of which nothing is known.
    """
    if (usual := _usual_dividing(settings, table, notes)) is not None:
        return usual
    own = _own_dividing(settings, table.rows) if table.rows.num_columns > 2 else {}
    likely = [column for column in own if _speaks_of_splits(column)]
    if len(likely) == 1:
        return likely[0], own[likely[0]]
    if own:
        notes.append(
            f"the values of {' and '.join(own)} are names of splits, by which no rows are divided; name a column split "
            "if it says what each row is for"
        )
    return None


def _usual_dividing(settings: config.Task, table: Table, notes: list[str]) -> tuple[str, pa.Array] | None:
    """The column with a usual name for it that states the split of each row, of which some are training rows and others
    are not, and the splits [rows]; null for a row of another one.

    Raises:
        DataError: for a column with training rows and with others of which nothing is known.
    """
    rows, named = table.rows, named_columns(settings)
    for column in rows.column_names:
        if column in named or column.lower() not in {*DIVIDING, *FLAGS}:
            continue
        flag = FLAGS.get(column.lower())
        splits = _splits(rows[column]) if flag is None else _flagged(rows[column], flag)
        if flag and splits is not None and 2 * pc.sum(pc.equal(splits, "train")).as_py() < len(splits):
            notes.append(f"column {column} is not taken for a split, as most rows would then not be for training")
            continue
        if flag and splits is None and (mixed := unclear(rows[column])) is not None:
            notes.append(f"column {column} divides no rows, as it is {mixed} in some rows, and not true or false")
        found = set() if splits is None else {*distinct(splits)}
        if splits is None or "train" not in found:
            continue
        # A few other values, such as `unlabeled`, are splits of which nothing is known.
        if len(found) > 1 and 2 * splits.null_count < len(splits):
            return column, splits
        others = distinct(rows[column].filter(pc.is_null(splits)))
        other = sorted(other for other in others if other.strip().lower() not in UNLABELLED)
        if other and "split" in column.lower():
            raise DataError(
                f"{', '.join(table.files)}: got train and {' and '.join(map(repr, other[:5]))} in column {column}, "
                f"which seems to divide the rows; must be train, validation or test; rename {other[0]!r}, or remove "
                "the column to train on all rows"
            )
    return None


def _own_dividing(settings: config.Task, rows: pa.Table) -> dict[str, pa.Array]:
    """Column of another name -> split of each row, if its texts are names of splits alone, one of them of training."""
    others, found = {*named_columns(settings)}, dict[str, pa.Array]()
    for column in rows.column_names:
        values = rows[column]
        if column in others or column.lower() in {*DIVIDING, *FLAGS, *LABELS} or not is_text(values.type):
            continue
        if not all(value.strip().lower() in SPLITS for value in distinct(values.slice(0, SAMPLE))):
            continue
        splits = _splits(values)
        if splits is not None and not splits.null_count and {*distinct(splits)} > {"train"}:
            found[column] = splits
    return found


def _speaks_of_splits(name: str) -> bool:
    """Whether the name of a column has a word for splits, as `SemEval_set`."""
    return bool(PARTS & {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)})


def _flagged(column: pa.ChunkedArray, split: str) -> pa.Array | None:
    """[rows] this split where a column says so, and another one elsewhere; None for other values."""
    if pa.types.is_nested(column.type):
        return None
    values = pc.utf8_lower(pc.utf8_trim_whitespace(pc.fill_null(pc.cast(column, pa.string()), "")))
    other = "validation" if split == "train" else "train"
    known = dict.fromkeys(TRUE, split) | dict.fromkeys(FALSE, other)
    numbers = pc.index_in(values, value_set=pa.array([*known])).combine_chunks()
    return None if numbers.null_count else pc.take(pa.array([*known.values()]), numbers)


def _splits(column: pa.ChunkedArray) -> pa.Array | None:
    """[rows] the split that a text names or, as `validation_matched`, begins with; null for other texts. None for a
    column without texts."""
    if not is_text(column.type):
        return None
    words = pc.utf8_lower(pc.utf8_trim_whitespace(column.cast(pa.string())))
    whole = {value: split_of(value) for value in pc.unique(words).to_pylist() if value is not None}
    names = [value for value, split in whole.items() if split is not None]
    numbers = pc.index_in(words, value_set=pa.array(names, pa.string())).combine_chunks()
    return pc.take(pa.array([whole[value] for value in names], pa.string()), numbers)
