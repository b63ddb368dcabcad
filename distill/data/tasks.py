"""Labelled tasks: their rows, as models read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from distill import config
from distill.data.asked import Asked
from distill.data.encode import Encoded, alternating, encode_task
from distill.data.encode_words import encode_words
from distill.data.held_out import Apart, apart
from distill.data.labelled import Labelled, labelled_rows
from distill.data.labels import check_head
from distill.data.questions import encode_questions
from distill.data.several_types import check_types
from distill.data.soft_labels import of_column
from distill.data.splits import DEVELOPMENT, Split, of_queries
from distill.data.task import Task, chosen, ignorable, is_own, renamed
from distill.data.task_tables import (
    SMOKE_TRAIN,
    SMOKE_VALIDATION,
    is_on_hub,
    patterns,
    pinned_revision,
    read_unlabelled,
    tables_of,
)
from distill.data.task_types import WORDS, flat, labelled, targets_in
from distill.data.task_types.layout import Parts
from distill.data.task_types.task_type import SOFT, group_numbers
from distill.errors import ConfigError, DataError
from distill.models.families.head import Head

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

_VALIDATION_SEED = 0
"""A limited validation split has the same rows for every seed, so that runs can be compared."""


@dataclass(frozen=True)
class TaskData:
    """A task and its rows, which have the text columns and `label`: class numbers (int64; -100 without a label), 0 and
    1 for each label (int64 lists), numbers (float32; NaN without a label), or class numbers of words (lists of any
    length), with `WORDS`."""

    task: Task
    train: Dataset
    development: dict[str, Dataset]
    """Split on which choices are made -> rows."""
    reported: dict[str, Dataset]
    """Split on which scores are reported -> rows: the test split if there is one, else the validation splits. Missing
    splits are left out; the coverage lists them with 0 rows."""

    def encoded(self, rows: Dataset, tokenizer: PreTrainedTokenizerBase, max_length: int) -> Encoded:
        """The tokens of rows, as from `encode_task`; of questions with contexts, and of texts in words, the windows."""
        if self.task.kind.extractive:
            question, context = (rows[column][:] for column in self.task.columns)
            return encode_questions(question, context, tokenizer, max_length, targets_of(rows))
        if self.task.kind.per_token:
            words, labels = (targets_in(rows.with_format("arrow")[name][:]) for name in (WORDS, "label"))
            places = [each.reshape(-1, 2) for each in words]
            encoded = encode_words(rows[self.task.columns[0]][:], places, tokenizer, max_length)
            return replace(encoded, labels=flat(labels).astype(np.int64))
        if not self.task.kind.separate:
            return encode_task(rows, self.task.columns, tokenizer, max_length)
        first, second = (
            encode_task(rows, (column,), tokenizer, max_length, prompt) for column, prompt in self.prompted
        )
        return replace(alternating(first, second), labels=first.labels)

    def inputs(self, rows: Dataset) -> list[list[str]]:
        """The texts of each sequence of rows, one or two: what a user's own code passes to the tokenizer."""
        return [list(sequence) for row in self._parts(rows) for sequence in self.task.kind.layout.sequences(row)]

    def asked(self, rows: Dataset) -> list[Asked]:
        """What a user asks a served model about: each row, or each text of rows whose texts are asked one by one."""
        layout, parts = self.task.kind.layout, self._parts(rows)
        if 0 < layout.asked < len(self.task.columns):
            parts = [(text,) for row in parts for text in row]
        return [Asked(layout.architecture, layout.divide(row[0] if len(row) == 1 else row)) for row in parts]

    def _parts(self, rows: Dataset) -> list[Parts]:
        """The texts of each row, and its columns `Layout.content`."""
        texts = ([prompt + text for text in rows[column]] for column, prompt in self.prompted)
        return list(zip(*texts, *(rows[column] for column in self.task.kind.layout.content), strict=True))

    @property
    def prompted(self) -> list[tuple[str, str]]:
        """The text columns, and what is put before their texts."""
        return list(zip(self.task.columns, self.task.prompts or [""] * len(self.task.columns), strict=True))

    def truth(self, rows: Dataset) -> np.ndarray:
        """Targets [n] or [n, labels] of rows, in the form that metrics take."""
        return self.task.kind.truth(targets_of(rows), [rows[name] for name in self.task.columns], self.task.labels)

    def scored(
        self, splits: Mapping[str, Dataset], tokenizer: PreTrainedTokenizerBase, max_length: int
    ) -> dict[str, Encoded]:
        """Split -> its rows as from `encoded`, with labels as from `truth`."""
        return {
            split: replace(self.encoded(rows, tokenizer, max_length), labels=self.truth(rows))
            for split, rows in splits.items()
        }


def soft_outputs_of(rows: Dataset) -> np.ndarray | None:
    """[n, outputs] soft labels of rows, which stand in for a teacher's outputs; NaN for rows without. Of rows with
    parts, [n] arrays, for `soft_labels.aligned`. None if no row has them."""
    return of_column(rows.with_format("arrow")[SOFT][:]) if SOFT in rows.column_names else None


def targets_of(rows: Dataset) -> np.ndarray:
    """Targets of rows: [n], [n, labels] or, of words, [n] arrays."""
    return targets_in(rows.with_format("arrow")["label"][:])


@dataclass(frozen=True)
class Loaded:
    tasks: dict[str, TaskData]
    coverage: list[dict[str, Any]]
    """A row for every split, also if it is missing: {task, split, rows, official_rows, in_headline, limited}."""
    notes: list[str]
    """Which columns and labels were chosen and which rows were left out, in lines for the user."""
    held_out: Apart
    """What the development and reported splits have, for transfer sets; empty without them."""


def load_tasks(
    tasks: config.Tasks, limit: config.Limit, seed: int, head: Head | None = None, *, transfer: bool = False
) -> Loaded:
    """The tasks named in `tasks` (all where it names none).

    `limited` in the coverage is true if `limit` removed rows. Generated rows that replace real data under `limit.smoke`
    also have `stand_in: true`. Of rows in words, which have `spans: true`, the labels that are counted are types of
    spans. A task of a published data set without train or validation rows is an error if it is named in `tasks.names`;
    otherwise it is skipped, and still listed in the coverage.

    Args:
        head: the classifier of the teacher, by whose names the labels of own tasks are ordered.
        transfer: whether transfer sets may be made, from which texts of development and reported splits are left out.

    Raises:
        ConfigError: an unknown task, settings that do not fit the files, or no task at `tasks.path`.
        DataError: a file that cannot be used, or a named task without rows.
    """
    loaded: dict[str, TaskData] = {}
    coverage: list[dict[str, Any]] = []
    notes = list(filter(None, [renamed(tasks)]))
    for name, settings in wanted(tasks).items():
        stand_in = limit.smoke and (settings.train is None or is_on_hub(settings, tasks))
        rows = read_task(name, settings, tasks, head, stand_in=stand_in)
        parts = {} if rows is None else _parts(rows)
        kept = {} if rows is None else {s: _limited(rows.task, part, s, limit, seed) for s, part in parts.items()}
        for split in dict.fromkeys([*settings.rows, *parts]):
            row = {"task": name, "split": split, "rows": len(kept.get(split, ()))}
            row |= {"official_rows": settings.rows.get(split), "in_headline": settings.in_headline}
            row["limited"] = split in kept and len(kept[split]) < len(parts[split].rows)
            if rows is not None and split in kept and not settings.rows:
                row |= {"labels": _counts(rows.task, kept[split])} if rows.task.labels else {}
                row |= {"spans": True} if rows.task.kind.per_token else {}
            if rows is not None and split in kept:
                row |= {"columns": [*rows.task.columns[: 1 if rows.task.kind.separate else None]]}
                row |= {"choices": True} if rows.task.kind.choices else {}
            coverage.append(row | {"stand_in": True} if stand_in else row)
        if rows is not None and rows.train is not None and rows.reported:
            development, reported = ({s: kept[s] for s in named} for named in (rows.development, rows.reported))
            loaded[name] = TaskData(rows.task, kept["train"], development, reported)
            if is_on_hub(settings, tasks) and not stand_in and (revision := pinned_revision(settings)):
                notes.append(f"{name}: {settings.hub} on the hub, revision {revision}")
            notes += rows.notes
        elif tasks.names:
            raise DataError(
                f"{tasks.path}/{name}: got {sorted({*kept} - {DEVELOPMENT})}; must hold train-*.parquet and "
                f"{next(iter(patterns(settings, 'validation')))}-*.parquet; add them or take {name} out of tasks.names"
            )
    if not loaded:
        raise ConfigError(
            f"tasks.path: got {tasks.path}; must be a folder in the layout of nyu-mll/glue "
            "(<task>/<split>-*.parquet); set tasks.path=DIR"
        )
    splits = {name: (d.task, [*d.development.values(), *d.reported.values()]) for name, d in loaded.items()}
    return Loaded(loaded, coverage, notes, apart(splits) if transfer else Apart())


def wanted(tasks: config.Tasks) -> dict[str, config.Task]:
    """Name -> settings of the tasks in `tasks.names`, or of all. Raises ConfigError for an unknown name."""
    every = chosen(tasks)
    if not every:
        raise ConfigError("tasks.train: got nothing; must be a file with labelled rows; set tasks.train=FILE")
    if unknown := [name for name in tasks.names or () if name not in every]:
        raise ConfigError(f"tasks.names: got {unknown}; must be of {list(every)}; correct them")
    return {name: every[name] for name in dict.fromkeys(tasks.names or every)}


def check_files(settings: config.Config, head: Head | None) -> None:
    """Read the user's own files, so that errors in them are found before torch is imported.

    Raises:
        DataError: for files with errors.
        ConfigError: for a teacher's head that does not fit them.
    """
    tasks = settings.tasks
    every = wanted(tasks)
    own = {n: task for n, task in every.items() if task.train is not None and not is_on_hub(task, tasks)}
    read = [read_task(name, settings, tasks, head, stand_in=False) for name, settings in own.items()]
    check_head(head, [rows.task for rows in read if rows is not None], "teacher.name")
    per_token = any(rows.task.kind.per_token for rows in read if rows is not None)
    if (unlabelled := read_unlabelled(settings, per_token=per_token)) is not None:
        kinds = {rows.task.name: rows.task.kind for rows in read if rows is not None}
        without = {name: kind.name for name, kind in kinds.items() if not kind.layout.makes("files")}
        columns = {name: [task.text, *filter(None, [task.text_pair])] for name, task in every.items()}
        columns |= {rows.task.name: list(rows.task.columns) for rows in read if rows is not None}
        if not (columns := {name: names for name, names in columns.items() if name not in without}):
            raise ConfigError(
                f"transfer.files: got {settings.transfer.files}; must be left out for tasks of the kind "
                f"{', '.join(dict.fromkeys(without.values()))}, whose rows without labels are not read from files; "
                "leave it out"
            )
        check_types(unlabelled.rows, [name for names in columns.values() for name in names])
        got = unlabelled.rows.column_names
        making = {name: kind.layout.making for name, kind in kinds.items()}
        least = {n: len(c) if (m := making.get(n)) is None else m.least_columns(len(c)) for n, c in columns.items()}
        if not any(len({*names} & {*got}) >= least[name] for name, names in columns.items()):
            raise DataError(
                f"{', '.join(unlabelled.files)}: got columns {', '.join(got)}; must have the text columns of a task "
                f"({' or '.join(', '.join(map(str, names)) for names in columns.values())}); rename them"
            )


def read_task(
    name: str, settings: config.Task, tasks: config.Tasks, head: Head | None, *, stand_in: bool
) -> Labelled | None:
    """The rows of a task; None if a published data set has no file at `tasks.path`."""
    key = "tasks" if is_own(tasks) else f"tasks.each.{name}"
    settings, tables = tables_of(name, settings, tasks, key, stand_in=stand_in)
    if not tables:
        return None
    rows = labelled_rows(name, settings, tables, head, key, ignorable(tasks, name))
    read = (note for table in tables.values() for note in table.notes)
    return replace(rows, notes=(*dict.fromkeys(read), *rows.notes))


def _parts(rows: Labelled) -> dict[str, Split]:
    train = {} if rows.train is None else {"train": rows.train}
    return train | rows.development | rows.reported


def _counts(task: Task, rows: Dataset) -> dict[str, int]:
    """Label -> number of rows that have it; of words, type -> number of spans."""
    targets = targets_of(rows)
    if task.kind.per_token:
        given = targets[labelled(targets)]
        truth = task.kind.truth(given, [[""] * len(given)], task.labels)
        return {label: count for label, (_, count) in task.kind.recalls(truth["label"], truth, task.labels).items()}
    if targets.ndim == 1:
        return {label: int((targets == number).sum()) for number, label in enumerate(task.labels)}
    return {label: int((targets[:, number] == 1).sum()) for number, label in enumerate(task.labels)}


def _limited(task: Task, part: Split, split: str, limit: config.Limit, seed: int) -> Dataset:
    """The rows of a split, or a random sample of them if there are more than the limit; of rankings that are scored, of
    queries with all of their rows."""
    from datasets import Dataset

    train, count = split == "train", len(part.rows)
    bounds = [limit.examples if train else limit.validation]
    if limit.smoke:
        bounds.append(SMOKE_TRAIN if train else SMOKE_VALIDATION)
    most = min((bound for bound in bounds if bound is not None), default=count)
    rows = part.rows
    if count > most:
        random = np.random.default_rng(seed if train else _VALIDATION_SEED)
        rows = rows[_drawn(part, None if train else task.queries, most, random)]
    # By default `datasets` makes a fingerprint of a copy of the whole table in memory. Nothing here uses it.
    whole = Dataset(part.table, fingerprint=split)
    return whole if len(rows) == whole.num_rows and (rows == np.arange(len(rows))).all() else whole.select(rows)


def _drawn(part: Split, queries: str | None, most: int, random: np.random.Generator) -> np.ndarray:
    """Numbers of at most `most` rows of a split; with a column of `queries`, of all rows of some of them."""
    if queries is None:
        return random.permutation(len(part.rows))[:most]
    _, numbers = np.unique(group_numbers(part.table[queries].to_pylist())[part.rows], return_inverse=True)
    return of_queries(numbers, random.permutation(int(numbers.max()) + 1), most)
