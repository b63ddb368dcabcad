"""Splits of a task's rows: rows without a label, hidden labels, copies of texts, what is set aside. Without torch."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from distill import config
from distill.data.files import Table
from distill.data.task_types import Columns, TaskType, flat, labelled, targets_in
from distill.errors import DataError
from distill.runtime import quoting

SET_ASIDE, MOST_ASIDE = 0.2, 10_000
"""Without a validation or test file, this share of the training rows validates, but at most this number of rows."""

DEVELOPMENT = "development"
"""The split on which choices are made, where it is a part of the training rows."""

DEVELOPED, MOST_DEVELOPED = 0.1, 2_000
"""This share of the training rows is the development split, but no more than this number of rows."""

FEWEST = {"train": 8, "validation": 2}
"""Minimum number of labelled rows of own tasks; other splits than train need as many as validation."""

CHANCE = 1e-6
"""So many rows without any label are less probable than this, by their share of the training rows (with one more of
each, as in Laplace's rule of succession), and their labels are hidden, as in the test splits of benchmarks."""

_BESIDE = re.compile(r"(?<=[^\w\s]) | (?=[^\w\s])")
"""Spaces beside another character than a letter or digit."""

_AT_ONCE = 8192
"""Rows whose texts are in memory at once."""

_INSTEAD = ", so choices are made on the rows that are reported"


@dataclass(frozen=True)
class Split:
    """Rows of a table that form a split. The table stays memory-mapped."""

    table: pa.Table
    """Text columns, `label`, the targets, and `SOFT` of training rows with soft labels."""
    rows: np.ndarray
    """Numbers of the table's rows that belong to the split, in order."""


def targets_of(split: Split) -> np.ndarray:
    """Targets [rows] or [rows, labels] of a split; of words, an array for each row."""
    return targets_in(split.table["label"])[split.rows]


def divided(splits: dict[str, Split], columns: Columns, notes: list[str], name: str) -> dict[str, Split]:
    """The splits, with a part of `train` set aside as `validation` if there is no split but train and development.

    The part depends on a hash of the text alone, so that all copies of a text are in the same split; for rows of a
    group on the group's text, and for questions on their context. Rows without a label stay in `train`, because they
    cannot validate, unless a row with the same text does.
    """
    if "train" not in splits or {*splits} - {"train", DEVELOPMENT}:
        return splits
    aside = _part(splits["train"], columns, SET_ASIDE, MOST_ASIDE)
    rest, part, counted, left_out = _apart(splits["train"], aside, columns)
    notes.append(f"{name}: {counted} are set aside for validation, by a hash of their text{left_out}")
    return splits | {"train": rest, "validation": part}


def developed(
    splits: dict[str, Split], columns: Columns, notes: list[str], name: str, made_up: bool = False
) -> dict[str, Split]:
    """The splits, with a part of `train` as `DEVELOPMENT` if choices would else be made on rows that are reported.

    With a test split they are made on the validation splits. As in `divided`, a hash of the text decides. Where the
    training rows have too few labels, or labels that were `made_up`, the splits are unchanged.
    """
    validated = {*splits} - {"train", "test"}
    if DEVELOPMENT in splits or "train" not in splits or ("test" in splits and validated):
        return splits
    if made_up:
        notes.append(f"{name}: the training rows have no labels of their own{_INSTEAD}")
        return splits
    train, salt = splits["train"], DEVELOPMENT  # other rows than those that `divided` would choose
    chosen = _part(train, columns, DEVELOPED, MOST_DEVELOPED, salt)
    rest, part, counted, left_out = _apart(train, chosen, columns)
    enough = labelled(targets_of(rest)).sum() >= FEWEST["train"] or not labelled(targets_of(train)).any()
    if chosen.sum() < FEWEST["validation"] or not enough:
        notes.append(f"{name}: the training rows have too few labels for a development split{_INSTEAD}")
        return splits
    notes.append(f"{name}: choices are made on {counted}, on which this run trains no model{left_out}")
    return splits | {"train": rest, DEVELOPMENT: part}


def _part(train: Split, columns: Columns, share: float, most: int, salt: str = "") -> np.ndarray:
    """[rows] whether a labelled row belongs to this share of the rows, of at most `most`."""
    can, task_type = labelled(targets_of(train)), columns.kind
    limit = min(share, most / max(1, int(can.sum()))) * 2.0**64
    choices = [columns.text[1:]] * task_type.extractive + [columns.text[:1] if task_type.grouped else columns.content]
    for texts in choices:
        codes = copy_hashes(train, texts, salt)
        part: np.ndarray = can & (codes < limit)
        # Of few contexts, none or most of the rows may be in the part.
        if FEWEST["validation"] <= part.sum() <= can.sum() / 2:
            break
    if task_type.grouped or task_type.extractive or task_type.choices:
        return part
    return _with_every_label(_without_heavy(part, codes, share), codes, share, targets_of(train))


def _without_heavy(part: np.ndarray, codes: np.ndarray, share: float) -> np.ndarray:
    """A part [rows] without the texts of which each alone has more than this share of the rows."""
    texts, counts = np.unique(codes, return_counts=True)
    heavy = texts[counts > max(1, share * len(codes))]
    rest = part & ~np.isin(codes, heavy)
    return rest if rest.sum() >= FEWEST["validation"] else part


def _with_every_label(part: np.ndarray, codes: np.ndarray, share: float, targets: np.ndarray) -> np.ndarray:
    """A part [rows] that also has this share of the texts of each label of which it has none, or all. Of a label with
    too few texts it has none."""
    if targets.dtype.kind != "i":
        return part
    columns = targets.T == 1 if targets.ndim == 2 else None
    can = labelled(targets)
    numbers = range(len(columns)) if columns is not None else np.unique(targets[can]).tolist()
    for number in numbers:
        rows = can & (targets == number if columns is None else columns[number])
        if 0 < (part & rows).sum() < rows.sum():
            continue
        texts = np.unique(codes[rows])  # in the order of their hashes
        chosen = np.isin(codes, texts[: int(share * len(texts))])
        part = (part & ~rows) | (chosen & can)
    return part


def _apart(train: Split, part: np.ndarray, columns: Columns) -> tuple[Split, Split, str, str]:
    """The training rows that are not in a part [rows] and are no copies of its rows, the part, and words for a note:
    how many rows the part has, and how many others are copies."""
    codes = copy_hashes(train, columns.content)
    copies = ~part & np.isin(codes, codes[part])
    rest, chosen = (Split(train.table, train.rows[rows]) for rows in (~(part | copies), part))
    counted = f"{int(part.sum()):,} of {int(labelled(targets_of(train)).sum()):,} labelled training rows"
    return rest, chosen, counted, f"; {copies.sum():,} copies of them are left out" if copies.any() else ""


def of_queries(numbers: np.ndarray, order: np.ndarray, most: int) -> np.ndarray:
    """Numbers of at most `most` rows, with all rows of a query, because a part of them would be another ranking. Of a
    first query that alone has more, some.

    Args:
        numbers: [rows] number of the query of each row, from 0.
        order: different queries, of which as many count as fit.
    """
    sizes = np.bincount(numbers)[order].cumsum()
    chosen = order[: max(1, int(np.searchsorted(sizes, most, side="right")))]
    return np.flatnonzero(np.isin(numbers, chosen))[:most]


def hashes(split: Split, columns: Sequence[str], salt: str = "") -> np.ndarray:
    """[rows] 64-bit hash of each row's text, without surrounding spaces; another one for each `salt`."""
    return np.fromiter(_hashes(split, columns, salt, str.strip), np.uint64, len(split.rows))


def copy_hashes(split: Split, columns: Sequence[str], salt: str = "") -> np.ndarray:
    """[rows] 64-bit hash of each row's text, the same for copies; another one for each `salt`."""
    return np.fromiter(_hashes(split, columns, salt, copied), np.uint64, len(split.rows))


def copied(text: str) -> str:
    """A text in the form that its copies have too: without case, without spaces beside other characters than letters
    and digits, and without full stops at the end. So tokenized texts are copies of plain ones."""
    one_space = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return _BESIDE.sub("", one_space).rstrip(".") or text.strip()


def _hashes(split: Split, columns: Sequence[str], salt: str, form: Callable[[str], str]) -> Iterator[int]:
    for start in range(0, len(split.rows), _AT_ONCE):
        rows = split.rows[start : start + _AT_ONCE]
        # The rows are in order. `take` would copy the texts of the whole table, and not only of this slice.
        part = split.table.select(columns).slice(rows[0], rows[-1] - rows[0] + 1).take(rows - rows[0])
        for texts in zip(*(part[column].to_pylist() for column in columns), strict=True):
            content = "\0".join(map(form, _flat(texts))).encode("utf-8", "surrogatepass")
            digest = hashlib.blake2b(content, digest_size=8, person=salt.encode()[:16])
            yield int.from_bytes(digest.digest(), "little")


def _flat(texts: Sequence[Any]) -> Iterator[str]:
    """Texts, also from lists."""
    for text in texts:
        yield from (text,) if isinstance(text, str) else text


def without_leaks(
    splits: dict[str, Split], columns: Columns, drop: bool, notes: list[str], name: str
) -> dict[str, Split]:
    """The splits without the training rows that are copies of rows of another split."""
    others = [part for split, part in splits.items() if split != "train"]
    if "train" not in splits or not others:
        return splits
    held = np.unique(np.concatenate([copy_hashes(part, columns.content) for part in others]))
    train = splits["train"]
    leaked = np.isin(copy_hashes(train, columns.content), held)
    if not leaked.any():
        return splits
    example = train.table[columns.text[0]][int(train.rows[leaked][0])].as_py()
    count = int(leaked.sum())
    if drop and leaked.all():
        raise DataError(
            f"{name}: got {count:,} training rows, which are all copies of development, validation or test rows; must "
            "be others; give other files, or keep the copies with tasks.drop_leaked=false"
        )
    action = "left out of training" if drop else "kept in training, because drop_leaked is false"
    notes.append(
        f"{name}: {count:,} training rows are copies of development, validation or test rows and are {action}, e.g. "
        f"{quoting.short(example)!r}"
    )
    return splits | {"train": Split(train.table, train.rows[~leaked])} if drop else splits


def repeated(train: Split, columns: Columns, name: str) -> Iterator[str]:
    """A line about training rows with the text of another row, and about texts whose rows have different labels."""
    targets = targets_of(train)
    if targets.dtype == object:
        return
    _, first, texts = np.unique(hashes(train, columns.content), return_index=True, return_inverse=True)
    copies = len(texts) - len(first)
    if not copies:
        return
    given = np.flatnonzero(labelled(targets))
    pairs = np.unique(np.column_stack([texts[given], targets[given]]), axis=0)
    different = np.flatnonzero(np.bincount(pairs[:, 0].astype(np.int64), minlength=len(first)) > 1)
    line = f"{name}: {copies:,} training rows have the text of another training row"
    if len(different):
        row = int(train.rows[first[different].min()])
        example = quoting.short(train.table[columns.text[0]][row].as_py())
        line += f", and {len(different):,} texts have different labels in different rows, e.g. {example!r}"
    yield line


def with_labels(split: Split, notes: list[str], name: str) -> Split:
    """The rows of a split that have a label."""
    flags = labelled(targets_of(split))
    if flags.all():
        return split
    notes.append(f"{name}: {int((~flags).sum()):,} rows without a label are left out")
    return Split(split.table, split.rows[flags])


def check_enough(splits: dict[str, Split], tables: Mapping[str, Table], task_type: TaskType, leaked: int) -> None:
    """Raise DataError for a split with too few labelled rows, and for training rows that all have the same label.

    leaked: number of training rows that were left out as copies of rows of other splits.
    """
    for split, part in splits.items():
        where = ", ".join(tables.get(split, tables.get("train", next(iter(tables.values())))).files)
        targets = targets_of(part)
        rows, fewest = int(labelled(targets).sum()), FEWEST.get(split, FEWEST["validation"])
        alone = task_type.separate and split == "train" and len(splits) > 1  # an embedder learns from its teacher alone
        if alone and (task_type.grouped or rows == 0) and len(targets) >= fewest:
            continue
        if rows < fewest:
            copies = leaked if split == "train" else 0
            besides = f", besides {copies:,} copies of rows of other splits" if copies else ""
            keep = ", or keep the copies with tasks.drop_leaked=false" if copies else ""
            raise DataError(
                f"{where}: got {rows} labelled {split} rows{besides}; must have {fewest} or more; add rows{keep}"
            )
        values = flat(targets[labelled(targets)])
        if task_type.grouped and not task_type.separate and (values > 0).all():
            raise DataError(
                f"{where}: got labels from {values.min():g} to {values.max():g}, all above 0, so that every document "
                "is relevant; must be 0 or below for documents that are not; subtract the lowest grade, or set "
                "tasks.kind=regression"
            )
        if split == "train" and not task_type.choices and len(np.unique(values, axis=0)) < 2:
            raise DataError(f"{where}: got the same label in all rows; must be two labels or more; add rows")


def with_any_label(
    splits: dict[str, Split],
    settings: config.Task,
    kind: TaskType,
    labels: Sequence[str],
    notes: list[str],
    name: str,
) -> dict[str, Split]:
    """The splits, without those of a folder that have no label at all, as the test splits of benchmarks."""
    named = {"train", DEVELOPMENT, *(s for s in splits if settings.rows or getattr(settings, s, None) is not None)}
    empty = [s for s, part in splits.items() if s not in named and not labelled(targets_of(part)).any()]
    notes += [f"{name}: the split {split} has no labels, and is left out" for split in empty]
    unknown = [s for s in hidden(splits, kind, labels) if s not in named and s not in empty]
    notes += [
        f"{name}: the split {split} is left out, as each of its rows has {kind.nothing_is}, which seems to stand for "
        "hidden labels"
        for split in unknown
    ]
    return {split: part for split, part in splits.items() if split not in (*empty, *unknown)}


def check_hidden(
    splits: dict[str, Split], tables: Mapping[str, Table], kind: TaskType, labels: Sequence[str], key: str
) -> None:
    """Raise DataError for a split that the settings name, and whose labels are hidden."""
    usual = _given(splits["train"], kind, labels) if kind.nothing is not None and "train" in splits else None
    for split in hidden(splits, kind, labels):
        if split in tables and not (usual is not None and usual.any()):
            raise DataError(
                f"{', '.join(tables[split].files)}: got rows of which each has {kind.nothing_is}, which seems to stand "
                f"for hidden labels; must have labels; leave {key}.{split} out, or give rows with labels"
            )


def hidden(splits: Mapping[str, Split], kind: TaskType, labels: Sequence[str]) -> list[str]:
    """The splits, besides `train`, with labels that are hidden."""
    if kind.nothing is None:
        return []
    found = {name: _given(part, kind, labels) for name, part in splits.items()}
    usual = found.get("train", np.zeros(0, np.bool_))
    share = (usual.sum() + 1) / (len(usual) + 2)
    others = ((name, rows) for name, rows in found.items() if name != "train" and len(rows))
    return [name for name, rows in others if rows.all() and share ** len(rows) < CHANCE]


def _given(split: Split, kind: TaskType, labels: Sequence[str]) -> np.ndarray:
    """[n] whether each row with a label states nothing by it."""
    assert kind.nothing is not None
    targets = targets_of(split)
    return kind.nothing(targets[labelled(targets)], labels)
