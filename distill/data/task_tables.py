"""The tables of labelled tasks: from files, from the hub, generated from docstrings, or stand-ins for a smoke run. Rows
without labels that the user has. Without torch."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from distill import config
from distill.data import docstrings, files, folders
from distill.data.about import About
from distill.data.class_names import classes_of, named
from distill.data.files import Table
from distill.data.hub import newest, parted
from distill.data.split_names import of_data_set
from distill.data.tagged_rows import with_lists_of_words
from distill.data.task_types import TASK_TYPES
from distill.data.task_types.task_type import as_list
from distill.errors import ConfigError

SMOKE_TRAIN, SMOKE_VALIDATION = 48, 24
"""Maximum number of rows of a split under `limit.smoke`."""


def tables_of(
    name: str, settings: config.Task, tasks: config.Tasks, key: str, *, stand_in: bool
) -> tuple[config.Task, dict[str, Table]]:
    """The settings of a task, with what its rows imply, and the table of each split; no tables if a published data set
    has no file at `tasks.path`. `stand_in`: whether rows are generated in place of its own."""
    if stand_in:
        return _stand_in(name, settings)
    if settings.docstrings:
        settings = replace(settings, labels=settings.labels or docstrings.labels(name))
        rows = {split: docstrings.rows(name, split, count) for split, count in settings.rows.items()}
        return settings, {split: _generated(columns, f"{name} {split}") for split, columns in rows.items()}
    if settings.train is not None and not is_on_hub(settings, tasks):
        return settings, _from_files(settings, tasks.path, key)
    return settings, _from_hub(settings, key)


def is_on_hub(settings: config.Task, tasks: config.Tasks) -> bool:
    """Whether the rows of a task are read from the hub, and not from files."""
    return settings.hub is not None and (settings.train is None or tasks.path is None)


def _generated(columns: Mapping[str, Any], name: str) -> Table:
    return Table(pa.table(dict(columns)), (name,), (0,))


def patterns(settings: config.Task, role: str) -> dict[str, Any]:
    """Split -> its files. `role`: train, development, validation or test."""
    value = getattr(settings, role)
    if value is None:
        return {}
    return dict(value) if isinstance(value, dict) else {role: value}


def _from_files(settings: config.Task, folder: str | None, key: str) -> dict[str, Table]:
    """The tables of the files of each split. A published data set may lack splits, and only parquet files are its."""
    tables: dict[str, Table] = {}
    for role in ("train", "development", "validation", "test"):
        for split, given in patterns(settings, role).items():
            paths = [str(path) if folder is None else str(Path(folder) / str(path)) for path in as_list(given)]
            if settings.rows and not any(glob.glob(path) for path in paths):
                continue
            tables |= folders.read(paths, split, f"{key}.{role}", settings)
    return tables


def _from_hub(settings: config.Task, key: str) -> dict[str, Table]:
    """The tables of a data set on the hub; names in place of class numbers."""
    from datasets import load_dataset

    assert settings.hub is not None
    owner_and_name, subset = parted(settings.hub)
    try:
        splits = load_dataset(owner_and_name, subset or None, revision=pinned_revision(settings))
    # The libraries that `datasets` uses raise many unrelated errors when a host is unreachable.
    except Exception as error:
        action = "set tasks.path=DIR" if settings.train is not None else "set tasks.train=FILE"
        raise ConfigError(
            f"{key}.hub: got {settings.hub}; must be a data set on the Hugging Face hub (it is unreachable, or has no "
            f"such data set); {action}"
        ) from error
    names = {each: each for each in settings.rows} or of_data_set(splits)
    tables = {}
    for split, given in names.items():
        if given in splits:
            rows, place = splits[given], f"{settings.hub} {given}"
            features = rows.features.to_dict()
            told = (About(classes=classes_of(features)),)
            tables[split] = Table(named(rows.data.table, features, place), (place,), (0,), told)
    return tables


def pinned_revision(settings: config.Task) -> str | None:
    """The revision of a data set on the hub that is loaded: the given one, or the newest commit, by its hash."""
    assert settings.hub is not None
    return settings.revision or newest(parted(settings.hub)[0])


def _stand_in(name: str, settings: config.Task) -> tuple[config.Task, dict[str, Table]]:
    """Rows with the task's columns and meaningless labels."""
    sentences: Iterator[str] = cycle(docstrings.sample(200))
    task_type = TASK_TYPES[settings.kind or "classification"]
    labels = settings.labels or [str(number) for number in range(docstrings.CLASSES)]
    settings = replace(
        settings,
        kind=task_type.name,
        text=settings.text or "text",
        label=settings.label or "label",
        labels=labels if task_type.named else None,
        text_pair=settings.text_pair or (None if 1 in task_type.layout.columns else "text_pair"),
        choices="choices" if task_type.choices else None,
        soft_label=None,
        class_weight=None,
    )
    columns = [column for column in (settings.text, settings.text_pair) if column is not None]
    tables = {}
    for split in settings.rows or ("train", "validation"):
        count = SMOKE_TRAIN if split == "train" else SMOKE_VALIDATION
        data: dict[str, Any] = {column: list(islice(sentences, count)) for column in columns}
        values = np.arange(count) % (len(labels) if task_type.named else 6)
        data[str(settings.label)] = [labels[value] for value in values] if task_type.named else values
        if task_type.per_token:
            data |= _in_words(data, columns[0], str(settings.label), labels)
        if task_type.choices:
            data |= {"choices": [list(islice(sentences, 3)) for _ in range(count)], settings.label: values % 3}
        if task_type.extractive:
            data[str(settings.label)] = [context.split()[:1] for context in data[columns[-1]]]
        tables[split] = _generated(data, f"{name} {split}")
    return settings, tables


def _in_words(data: Mapping[str, Any], text: str, label: str, labels: Sequence[str]) -> dict[str, Any]:
    """The texts as lists of words, of which the first has the label of the text, and the others the first label."""
    words = [value.split() for value in data[text]]
    tags = [[tag, *[labels[0]] * (len(part) - 1)] for tag, part in zip(data[label], words, strict=True)]
    return {text: words, label: tags}


def read_unlabelled(settings: config.Config, *, per_token: bool) -> Table | None:
    """The rows of `transfer.files`; None without. `per_token`: whether a task has a tag for each word."""
    if settings.transfer.files is None or settings.transfer.times == 0:
        return None
    paths, key = as_list(settings.transfer.files), "transfer.files"
    if len(paths) == 1 and folders.is_known(str(paths[0])):
        return folders.of_role(str(paths[0]), "train", key)
    table = files.read([*map(str, paths)], key, settings.tasks.separator)
    return with_lists_of_words(config.Task(), table, [], "", untagged=per_token)
