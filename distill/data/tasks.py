"""Loads labelled tasks: GLUE from disk or the hub, and the five generated from docstrings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset

from distill import config
from distill.data import docstrings, tables
from distill.data.records import TASKS, Task
from distill.errors import ConfigError, DataError

SMOKE_TRAIN, SMOKE_VALIDATION = 48, 24
"""Maximum number of rows of a split under `limit.smoke`."""

HIGHEST = 5
"""Labels of regressions (STS-B, `overlap`) are between 0 and this."""

_VALIDATION_SEED = 0
"""A limited validation split has the same rows for every seed, so that runs can be compared."""


@dataclass(frozen=True)
class TaskData:
    """A task and its rows, which have the text columns and `label` (int64, or float32 for a regression)."""

    task: Task
    train: Dataset
    validation: dict[str, Dataset]
    """Split -> rows. Missing splits are left out; the coverage lists them with 0 rows."""


def load_tasks(tasks: config.Tasks, limit: config.Limit, seed: int) -> tuple[dict[str, TaskData], list[dict[str, Any]]]:
    """The tasks named in `tasks` (all where it names none), and their coverage: a row for every split, also if missing.

    A coverage row is {task, split, rows, official_rows, limited}; `limited` is true if `limit` removed rows. Generated
    rows that replace real data under `limit.smoke` also have `stand_in: true`. A task without train or validation rows
    is an error if it is named in `tasks.names`; otherwise it is skipped, and still listed in the coverage.

    Raises:
        ConfigError: an unknown kind or task, or no task at `tasks.path`.
        DataError: a file that cannot be used, or a named task without rows.
    """
    records = TASKS.get(tasks.kind)
    if records is None:
        raise ConfigError(f"tasks.kind: got {tasks.kind}; must be {' or '.join(TASKS)}; choose one")
    if unknown := [name for name in tasks.names or () if name not in records]:
        raise ConfigError(f"tasks.names: got {unknown}; must be of {list(records)}; correct them")
    stand_in = limit.smoke and not (tasks.kind == "glue" and tasks.path)
    loaded: dict[str, TaskData] = {}
    coverage: list[dict[str, Any]] = []
    for task in (records[name] for name in dict.fromkeys(tasks.names or records)):
        whole = _stand_in(task) if stand_in else _splits(task, tasks)
        kept = {split: _limited(rows, split, limit, seed) for split, rows in whole.items()}
        for split, official in task.official.items():
            rows = kept[split].num_rows if split in kept else 0
            limited = split in kept and rows < whole[split].num_rows
            row = {"task": task.name, "split": split, "rows": rows}
            row |= {"official_rows": official, "limited": limited}
            coverage.append(row | {"stand_in": True} if stand_in else row)
        validation = {split: kept[split] for split in task.validation if split in kept}
        if "train" in kept and validation:
            loaded[task.name] = TaskData(task, kept["train"], validation)
        elif tasks.names:
            raise DataError(
                f"{tasks.path}/{task.name}: got {sorted(kept)}; must hold train-*.parquet and "
                f"{task.validation[0]}-*.parquet; add them or take {task.name} out of tasks.names"
            )
    if not loaded:
        raise ConfigError(
            f"tasks.path: got {tasks.path}; must be a folder in the layout of nyu-mll/glue "
            "(<task>/<split>-*.parquet); set tasks.path=DIR"
        )
    return loaded, coverage


def _splits(task: Task, tasks: config.Tasks) -> dict[str, Dataset]:
    if tasks.kind == "docstrings":
        return {
            split: check(task, pa.table(docstrings.rows(task.name, split)), f"{task.name} {split}")
            for split in task.official
        }
    return _from_disk(task, Path(tasks.path)) if tasks.path else _from_hub(task)


def _from_disk(task: Task, folder: Path) -> dict[str, Dataset]:
    splits = {}
    for split in task.official:
        files = sorted((folder / task.name).glob(f"{split}-*.parquet"))
        parts = [check(task, tables.read_parquet(file, (*task.columns, "label")), file).data.table for file in files]
        if parts and not any(part.num_rows for part in parts):
            raise DataError(
                f"{', '.join(map(str, files))}: got no rows; must hold at least one; add rows, or take {task.name} out "
                "of tasks.names"
            )
        if parts:
            splits[split] = Dataset(pa.concat_tables(parts))
    return splits


def _from_hub(task: Task) -> dict[str, Dataset]:
    from datasets import load_dataset

    try:
        splits = load_dataset("nyu-mll/glue", task.name)
    # The libraries that `datasets` uses raise many unrelated errors when a host is unreachable.
    except Exception as error:
        raise ConfigError(
            "tasks.path: got null; must be a folder in the layout of nyu-mll/glue because the hub "
            "is unreachable; set tasks.path=DIR"
        ) from error
    return {
        split: check(task, splits[split].data.table, f"nyu-mll/glue {task.name} {split}")
        for split in task.official
        if split in splits
    }


def check(task: Task, table: pa.Table, where: object) -> Dataset:
    """The rows of a table as a data set. DataError for a row without text or with a label that the task does not allow.

    The error counts rows from 0. One text of a pair may be empty, as in a few official QQP rows, but not both.
    """
    empty = np.ones(table.num_rows, dtype=np.bool_)
    data: dict[str, Any] = {}
    for column in task.columns:
        data[column] = tables.texts(table, column, where)
        empty &= tables.blank(data[column])
    if empty.any():
        raise DataError(
            f"{where}, row {tables.first(empty)}: got no text in {' or '.join(task.columns)}; must "
            "be text; remove the row"
        )
    labels = table["label"].to_numpy()
    if labels.dtype.kind not in "iuf":
        raise DataError(f"{where}: got labels of type {labels.dtype}; must be numbers; convert them")
    if task.num_labels == 1:
        bad, rule = ~((labels >= 0) & (labels <= HIGHEST)), f"a number from 0 to {HIGHEST}"
    else:
        bad = ~((labels >= 0) & (labels < task.num_labels) & (labels == np.floor(labels)))
        rule = f"a whole number from 0 to {task.num_labels - 1}"
    if bad.any():
        row = tables.first(bad)
        raise DataError(f"{where}, row {row}: got label {labels[row]}; must be {rule}; correct the row")
    data["label"] = labels.astype(np.float32 if task.num_labels == 1 else np.int64)
    return Dataset(pa.table(data))


def _limited(rows: Dataset, split: str, limit: config.Limit, seed: int) -> Dataset:
    """A random sample of the rows if there are more than the limit, else all of them."""
    train = split == "train"
    bounds = [limit.examples if train else limit.validation]
    if limit.smoke:
        bounds.append(SMOKE_TRAIN if train else SMOKE_VALIDATION)
    most = min((bound for bound in bounds if bound is not None), default=rows.num_rows)
    if rows.num_rows <= most:
        return rows
    order = np.random.default_rng(seed if train else _VALIDATION_SEED).permutation(rows.num_rows)
    return rows.select(order[:most])


def _stand_in(task: Task) -> dict[str, Dataset]:
    """Rows with the task's columns and meaningless labels."""
    sentences: Iterator[str] = cycle(docstrings.sample(200))
    splits = {}
    for split in task.official:
        count = SMOKE_TRAIN if split == "train" else SMOKE_VALIDATION
        data: dict[str, Any] = {c: list(islice(sentences, count)) for c in task.columns}
        data["label"] = np.arange(count) % (task.num_labels if task.num_labels > 1 else 6)
        splits[split] = check(task, pa.table(data), f"{task.name} {split}")
    return splits
