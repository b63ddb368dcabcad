"""The labelled rows of a task, from tables to targets: checked, divided into splits, without leaks. Without torch."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distill import config
from distill.data.columns import check_texts, columns_of
from distill.data.files import Table
from distill.data.kinds import KINDS, Columns, Kind, flat, labelled, targets_in
from distill.data.kinds.classification import label_names
from distill.data.kinds.question_answering import ALWAYS, answerable
from distill.data.labels import Labels, labels_of
from distill.data.task import Task
from distill.data.vectors import prompts_of, scaled
from distill.errors import ConfigError, DataError
from distill.family.head import Head
from distill.family.record import VECTORS

SET_ASIDE, MOST_ASIDE = 0.2, 10_000
"""Without a validation file, this share of the training rows validates, but no more than this number of rows."""

LONGEST = 1_000_000
"""Maximum characters of a text. A longer one is most likely several rows, joined by a missing quote."""

FOR_KINDS = {
    "labels": tuple(name for name, kind in KINDS.items() if kind.named),
    "range": ("regression", "reranking", "embedding"),
    "threshold": ("multi_label", "question_answering"),
    "choices": ("multiple_choice",),
    "prompts": tuple(name for name, kind in KINDS.items() if kind.separate),
}
"""Setting of a task -> the kinds that it is for."""

FEWEST = {"train": 8, "validation": 2}
"""Minimum number of labelled rows of own tasks; other splits than train need as many as validation."""

MOST_LABELS, SHARE = 20, 0.5
"""Unless they are listed, labels of more rows than the first number may be no more than this share of the rows."""

_AT_ONCE = 8192
"""Rows whose texts are in memory at once."""


@dataclass(frozen=True)
class Split:
    """Rows of a table that form a split. The table stays memory-mapped."""

    table: pa.Table
    """Text columns and `label`, the targets."""
    rows: np.ndarray
    """Numbers of the table's rows that belong to the split, in order."""


@dataclass(frozen=True)
class Labelled:
    """A task and its rows."""

    task: Task
    train: Split | None
    validation: dict[str, Split]
    """Splits on which choices are made."""
    reported: dict[str, Split]
    """Splits on which scores are reported: the test split, else those of `validation`."""
    notes: tuple[str, ...] = field(default=())
    """What was chosen or left out, in lines for the user."""


def labelled_rows(
    name: str, settings: config.Task, tables: Mapping[str, Table], head: Head | None, key: str
) -> Labelled:
    """The rows of a task whose splits `tables` has, `train` first if it is there.

    Args:
        head: the classifier of the teacher, by whose names labels are ordered; None without.
        key: setting of the task, e.g. `tasks`, for messages.

    Raises:
        ConfigError: for settings that do not fit the files, and for labels that are not those of the head.
        DataError: for rows that cannot be used.
    """
    first = next(iter(tables.values()))
    columns = columns_of(settings, first.rows, head, key, first.files[0])
    prompts = tuple(settings.prompts or ()) or prompts_of(columns.kind, head)
    head = None if head is None or head.architecture == VECTORS else head  # an embedder has no labels
    _check_settings(settings, columns.kind, key)
    for table in tables.values():
        _check_columns(table, columns, key)
    if columns.kind.prepare is not None:
        tables = {split: _prepared(table, columns) for split, table in tables.items()}
    for table in tables.values():
        check_texts(table.rows, columns.text, ", ".join(table.files))
    joined = {split: label_column(table, columns) for split, table in tables.items()}
    several = columns.label if len(columns.label) > 1 else ()
    labels = labels_of(settings, columns.kind, joined, head, key, several)
    if columns.kind.named and settings.labels is None and head is None:
        _check_labels(labels.names, columns, first, key)
    splits: dict[str, Split] = {}
    for split, table in tables.items():
        targets = columns.kind.encode(joined[split], labels.spelled, table.where, f"{key}.label")
        if not columns.kind.per_token:
            _check_range(settings.range, targets, table)
        content = table.rows.select([*columns.text, *columns.hidden]).append_column("label", _column(targets))
        splits[split] = Split(content, usable_rows(table, columns.text))
    notes = [*_described(name, settings, columns, labels), *labels.notes]
    splits = {s: part if s == "train" else _with_labels(part, notes, f"{name} {s}") for s, part in splits.items()}
    if not settings.rows:  # the splits of a published data set are used as they are
        # Leaks first: a row of the test file must not be set aside. The rows of a group stay together.
        splits = _without_leaks(splits, columns, settings.drop_leaked is not False, notes, name)
        splits = _divided(splits, columns.text[:1] if columns.kind.grouped else columns.content, notes, name)
        _check_enough(splits, tables, columns.kind)
    ends = _range(settings.range, splits.get("train")) if columns.kind.name in FOR_KINDS["range"] else None
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
        dict(settings.rows),
        prompts,
        columns.choices,
    )
    validation = {s: part for s, part in splits.items() if s not in ("train", "test")}
    reported = {"test": splits["test"]} if "test" in splits else validation
    return Labelled(task, splits.get("train"), validation, reported, tuple(notes))


def _check_settings(settings: config.Task, kind: Kind, key: str) -> None:
    """ConfigError for settings of another kind of task."""
    unfit = [metric for metric in settings.metrics or () if metric not in kind.all_metrics]
    if unfit:
        raise ConfigError(
            f"{key}.metrics: got {', '.join(unfit)}; must be of {', '.join(kind.all_metrics)} for {kind.name}; choose "
            f"from these, or set {key}.kind"
        )
    for name, kinds in FOR_KINDS.items():
        if getattr(settings, name) and kind.name not in kinds:
            raise ConfigError(
                f"{key}.{name}: got {getattr(settings, name)}; must be null for {kind.name}; leave it out, or set "
                f"{key}.kind={kinds[0]}"
            )


def _check_labels(names: Sequence[str], columns: Columns, table: Table, key: str) -> None:
    """Refuse a column whose values are no labels."""
    label, file, rows = ", ".join(columns.label), table.files[0], table.rows.num_rows
    fraction = next((name for name in names if re.fullmatch(r"[+-]?\d*\.\d+", name)), None)
    if fraction is not None and columns.kind.name == "multi_label":
        raise ConfigError(
            f"{key}.kind: got multi_label, and {fraction} in {label} of {file}; must be regression for numbers; set "
            f"{key}.kind=regression, or list the labels in {key}.labels"
        )
    if len(names) < 2:
        raise DataError(
            f"{file}: got {f'only the label {names[0]!r}' if names else 'no label'} in {label}; must be two labels or "
            f"more; add rows, or set {key}.label=COLUMN"
        )
    if len(names) > max(MOST_LABELS, SHARE * rows):
        raise ConfigError(
            f"{key}.label: got {label}, with {len(names):,} different labels in {rows:,} rows of {file}; must be a "
            f"column of labels or numbers; set {key}.label=COLUMN (of {', '.join(table.rows.column_names)})"
        )


def _check_columns(table: Table, columns: Columns, key: str) -> None:
    wanted = (*columns.text, *columns.choices, *columns.label)
    missing = [name for name in wanted if name not in table.rows.column_names]
    where = ", ".join(table.files)
    if missing:
        raise DataError(
            f"{where}: got columns {', '.join(table.rows.column_names)}; must have {', '.join(missing)}, as the "
            "training rows do; add or rename it"
        )
    for name in columns.label:
        kind = columns.kind if len(columns.label) == 1 else KINDS["classification"]
        if not kind.accepts(table.rows[name].type):
            raise DataError(
                f"{where}: got {table.rows[name].type} in column {name}; must be {kind.form} for {columns.kind.name}; "
                f"convert it, or set {key}.kind or {key}.label"
            )


def _prepared(table: Table, columns: Columns) -> Table:
    assert columns.kind.prepare is not None
    return replace(table, rows=columns.kind.prepare(table.rows, columns, table.where))


def label_column(table: Table, columns: Columns) -> pa.ChunkedArray:
    """The label column; of several columns of 0 and 1, the names of those that are 1."""
    if len(columns.label) == 1:
        return table.rows[columns.label[0]]
    flags = [_flags(table, name) for name in columns.label]
    return pa.chunked_array(
        [pa.array([[n for n, f in zip(columns.label, row, strict=True) if f] for row in zip(*flags, strict=True)])]
    )


def _flags(table: Table, name: str) -> np.ndarray:
    values = pc.utf8_lower(label_names(table.rows[name]))
    yes = pc.is_in(values, pa.array(["1", "true"])).to_numpy()
    no = pc.is_in(values, pa.array(["0", "false"])).to_numpy()
    if not (yes | no).all():
        row = int(np.flatnonzero(~(yes | no))[0])
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
    """Numbers of all rows. DataError for the first row without text, or with a text that is too long."""
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


def _threshold(kind: Kind, splits: Mapping[str, Split], notes: list[str], name: str) -> float:
    """The probability above which there is no answer: without such questions in the training rows, never."""
    if not kind.extractive:
        return 0.5
    targets = targets_of(splits["train"] if "train" in splits else next(iter(splits.values())))
    given = targets[labelled(targets)]
    share = 1 - float(answerable(given).mean())
    if share == 0:
        notes.append(f"{name}: every training question has an answer in its context, so the model always answers")
        return ALWAYS
    notes.append(f"{name}: {100 * share:.0f}% of the training questions have no answer in their context")
    return 0.5


def targets_of(split: Split) -> np.ndarray:
    """Targets [rows] or [rows, labels] of a split; of words, an array for each row."""
    targets: np.ndarray = targets_in(split.table["label"])[split.rows]
    return targets


def _divided(splits: dict[str, Split], texts: Sequence[str], notes: list[str], name: str) -> dict[str, Split]:
    """The splits, with a part of `train` set aside as `validation` if there is no split but train and test.

    The part depends on a hash of the columns `texts` alone, so that all copies of a text are in the same split. Rows
    without a label stay in `train`, because they cannot validate, unless a row with the same text does.
    """
    if "train" not in splits or any(split not in ("train", "test") for split in splits):
        return splits
    train = splits["train"]
    can, codes = labelled(targets_of(train)), hashes(train, texts)
    aside = can & (codes < min(SET_ASIDE, MOST_ASIDE / max(1, int(can.sum()))) * 2.0**64)
    copies = ~can & np.isin(codes, codes[aside])
    notes.append(
        f"{name}: {int(aside.sum()):,} of {int(can.sum()):,} labelled training rows are set aside for validation, by a "
        f"hash of their text{f'; {int(copies.sum()):,} copies without a label are left out' if copies.any() else ''}"
    )
    test = {"test": splits["test"]} if "test" in splits else {}
    parts = {"train": train.rows[~(aside | copies)], "validation": train.rows[aside]}
    return {split: Split(train.table, rows) for split, rows in parts.items()} | test


def hashes(split: Split, columns: Sequence[str]) -> np.ndarray:
    """[rows] 64-bit hash of each row's text, without surrounding spaces."""
    return np.fromiter(_hashes(split, columns), np.uint64, len(split.rows))


def _hashes(split: Split, columns: Sequence[str]) -> Iterator[int]:
    for start in range(0, len(split.rows), _AT_ONCE):
        rows = split.rows[start : start + _AT_ONCE]
        # The rows are in order. `take` would copy the texts of the whole table, and not only of this slice.
        part = split.table.select(columns).slice(rows[0], rows[-1] - rows[0] + 1).take(rows - rows[0])
        for texts in zip(*(part[column].to_pylist() for column in columns), strict=True):
            content = "\0".join(_flat(texts)).encode("utf-8", "surrogatepass")
            yield int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def _flat(texts: Sequence[Any]) -> Iterator[str]:
    """Texts, and those of lists, without surrounding spaces."""
    for text in texts:
        yield from (text.strip(),) if isinstance(text, str) else (part.strip() for part in text)


def _without_leaks(
    splits: dict[str, Split], columns: Columns, drop: bool, notes: list[str], name: str
) -> dict[str, Split]:
    """The splits without the training rows whose text is also a validation or test row."""
    others = [part for split, part in splits.items() if split != "train"]
    if "train" not in splits or not others:
        return splits
    held = np.unique(np.concatenate([hashes(part, columns.content) for part in others]))
    train = splits["train"]
    leaked = np.isin(hashes(train, columns.content), held)
    if not leaked.any():
        return splits
    example = train.table[columns.text[0]][int(train.rows[leaked][0])].as_py()
    count = int(leaked.sum())
    action = "left out of training" if drop else "kept in training, because drop_leaked is false"
    notes.append(
        f"{name}: {count:,} training rows have the text of a validation or test row and are {action}, e.g. "
        f"{_short(example)!r}"
    )
    return splits | {"train": Split(train.table, train.rows[~leaked])} if drop else splits


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def _with_labels(split: Split, notes: list[str], name: str) -> Split:
    """The rows of a split that have a label."""
    flags = labelled(targets_of(split))
    if flags.all():
        return split
    notes.append(f"{name}: {int((~flags).sum()):,} rows without a label are left out")
    return Split(split.table, split.rows[flags])


def _check_enough(splits: dict[str, Split], tables: Mapping[str, Table], kind: Kind) -> None:
    """DataError for a split with too few labelled rows, and for training rows that all have the same label."""
    for split, part in splits.items():
        where = ", ".join(tables.get(split, tables.get("train", next(iter(tables.values())))).files)
        targets = targets_of(part)
        rows, fewest = int(labelled(targets).sum()), FEWEST.get(split, FEWEST["validation"])
        if rows < fewest:
            raise DataError(f"{where}: got {rows} labelled {split} rows; must have {fewest} or more; add rows")
        values = flat(targets[labelled(targets)])
        if split == "train" and not kind.choices and len(np.unique(values, axis=0)) < 2:
            raise DataError(f"{where}: got the same label in all rows; must be two labels or more; add rows")


def _described(name: str, settings: config.Task, columns: Columns, labels: Labels) -> Iterator[str]:
    """A line about what was chosen, unless the settings state all of it."""
    if None in (settings.text, settings.label, settings.kind):
        shown = ", ".join(labels.names[:12]) + (", ..." if len(labels.names) > 12 else "")
        classes = f" with {len(labels.names)} labels ({shown})" if labels.names else ""
        yield (
            f"{name}: text from {' and '.join(columns.text)}, {_choices(columns)}label from "
            f"{', '.join(columns.label)}{' (counted from 1)' * columns.first}: "
            f"{columns.kind.name}{classes}"
        )


def _choices(columns: Columns) -> str:
    return f"choices from {', '.join(columns.choices)}, " if columns.choices else ""
