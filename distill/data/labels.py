"""The labels of a task, in the order of the model's outputs, from the settings, the teacher, or the files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from distill import config
from distill.data.task import Task
from distill.data.task_types import TaskType
from distill.data.task_types.classification import CLASSIFICATION
from distill.data.task_types.multi_label import MULTI_LABEL
from distill.data.task_types.sets import OTHERS, SEPARATORS, parts
from distill.data.task_types.task_type import sorted_names
from distill.data.task_types.written import WHOLE, spelled_alike
from distill.errors import ConfigError
from distill.models.families.head import Head
from distill.models.families.record import VECTORS
from distill.runtime.quoting import setting

_SHOWN = 20
"""Maximum number of labels in a message."""


@dataclass(frozen=True)
class Labels:
    names: tuple[str, ...]
    """Names in the order of the model's outputs; empty for a number."""
    spelled: tuple[str, ...]
    """The same labels as the files spell them."""
    notes: tuple[str, ...] = ()
    """How labels were matched, in lines for the user."""


def labels_of(
    settings: config.Task,
    task_type: TaskType,
    columns: Mapping[str, pa.ChunkedArray],
    head: Head | None,
    key: str,
    named: Sequence[str] = (),
    numbered: Sequence[str] = (),
) -> Labels:
    """The labels of a task.

    Args:
        columns: split -> column of labels [rows].
        head: the classifier of the teacher, by whose names labels are ordered; None without.
        key: setting of the task, e.g. `tasks`, for messages.
        named: the labels in the files if they are known; else the labels of the training rows are used, sorted.
        numbered: the labels in the order of the numbers that the files have for them; empty without numbers.

    Raises:
        ConfigError: if the labels are not those of the head, or their order is unknown.
    """
    if not task_type.named:
        return Labels((), ())
    in_files = tuple(named) or sorted_names(_names(task_type, columns))
    if settings.labels is not None:
        names = tuple(str(name) for name in settings.labels)
        if len(numbered) == len(names) and not {*map(spelled_alike, names)} & {*map(spelled_alike, numbered)}:
            if not all(re.fullmatch(r"\d+|(label|class)[_ -]?\d+", name, re.IGNORECASE) for name in numbered):
                raise ConfigError(
                    f"{key}.labels: got {_shown(names)}, and the files have the classes {_shown(tuple(numbered))}; "
                    "must be these names, in the order of the outputs; rename the classes in the files, or leave out "
                    f"{key}.labels"
                )
            note = f"the labels in the files are those of {key}.labels: {_pairs(numbered, names)}"
            return Labels(names, tuple(numbered), (note,))
        numbers = tuple(map(str, range(len(names))))
        # A wrong label is refused with its row later, so here most of them decide.
        as_named = {spelled_alike(name) for name in names} & {spelled_alike(name) for name in in_files}
        by_number = not numbered and len({*numbers} & {*in_files}) > len(as_named)
        return Labels(names, numbers if by_number else _in_spelling(names, in_files))
    if head is None:
        ordered = tuple(named) or task_type.order(set(in_files))
        return Labels(ordered, ordered)
    if not head.labels and len(numbered) == head.outputs and {*in_files} <= {*numbered}:
        pairs = _pairs(range(len(numbered)), numbered)
        note = f"the teacher's outputs have no names, and are those of the numbers in the files: {pairs}"
        return Labels(tuple(numbered), tuple(numbered), (note,))
    return _of_head(head, in_files, key, task_type)


def _names(task_type: TaskType, columns: Mapping[str, pa.ChunkedArray]) -> set[str]:
    """The names of all labels of the training rows, or of all rows without training rows."""
    return set().union(*map(task_type.names, [columns["train"]] if "train" in columns else columns.values()))


def _of_head(head: Head, in_files: tuple[str, ...], key: str, task_type: TaskType) -> Labels:
    """The head's labels, and how the files spell them: the same names, or the numbers of the outputs."""
    names = head.names
    spelled = _spelled(names, in_files)
    if spelled is None and not head.labels:
        spelled = _spelled(tuple(f"LABEL_{number}" for number in range(head.outputs)), in_files)
    if spelled is not None:
        numbers = spelled != names and spelled == tuple(map(str, range(len(names))))
        note = f"the labels in the files are the teacher's outputs: {_pairs(spelled, names)}"
        return Labels(names, spelled, (note,) if numbers else ())
    unstated = head.problem is None and task_type is CLASSIFICATION
    if unstated and (joined := _joined(names, in_files)) is not None:
        raise ConfigError(
            f"{key}.label: got {joined!r}, where the teacher's labels are {_shown(names)}, without a problem_type; "
            f"must be one label, unless texts have several; if they do, set {setting(f'{key}.kind', MULTI_LABEL.name)}"
        )
    if head.labels:
        raise ConfigError(
            f"{key}.label: got {_shown(in_files)}; must be labels of the teacher, which are {_shown(head.labels)}; "
            "rename them in the file, or give the teacher a new head; set teacher.head=new"
        )
    raise ConfigError(
        f"{key}.labels: got nothing, and the teacher's {head.outputs} outputs have no names; must be the labels in the "
        f"order of its outputs; put them in that order, and set {setting(f'{key}.labels', in_files)}"
    )


def head_order(head: Head, task: Task) -> tuple[int, ...] | None:
    """For each label of a task, the number of a classifier's output with its name; None for other labels.

    Empty for an embedder, which fits every task.

    Outputs without names have the labels in order.
    """
    if head.architecture == VECTORS:  # an embedder without the labels of any task
        return ()
    several = (head.problem or task.kind.problem) == MULTI_LABEL.problem  # many configs state no problem
    if (head.outputs, head.architecture) != (task.outputs, task.kind.architecture) or several != (
        task.kind is MULTI_LABEL
    ):
        return None
    unnamed = not task.labels or not head.labels or task.labels == tuple(map(str, range(task.outputs)))
    numbers = {spelled_alike(label): number for number, label in enumerate(head.labels)}
    order = tuple(numbers.get(spelled_alike(label), -1) for label in task.labels)
    if order and sorted(order) == list(range(head.outputs)):
        return order
    return tuple(range(head.outputs)) if unnamed else None


def check_head(head: Head | None, tasks: Iterable[Task], key: str) -> None:
    """Raise ConfigError, about the setting `key`, unless the model's classifier, if it has one, fits every task."""
    wrong = [] if head is None else [task for task in tasks if head_order(head, task) is None]
    if head is not None and wrong:
        labels = f" ({_shown(head.labels)})" if head.labels else ""
        wanted = "; ".join(f"{task.name}: {_shown(task.labels) or 'a number'}" for task in wrong)
        other = "set teacher.head=new" if key.startswith("teacher.") else "choose a model without a head"
        raise ConfigError(
            f"{key}: got a classifier of {head.outputs} outputs{labels}; must have a head for the labels of "
            f"{wanted}, or none; choose the tasks it was trained for with tasks.names, or {other}"
        )


def _spelled(names: tuple[str, ...], in_files: tuple[str, ...]) -> tuple[str, ...] | None:
    """The spelling in the files of each name. None if a label of the files is neither a name nor a number of one."""
    files = {spelled_alike(name): name for name in in_files}
    known = {spelled_alike(name) for name in names}
    if set(files) <= known and len(files) == len(in_files):
        return _in_spelling(names, in_files)
    numbers = tuple(map(str, range(len(names))))
    from_0 = "0" in in_files  # else they may be counted from 1
    return numbers if from_0 and set(in_files) <= set(numbers) else None


def _joined(names: tuple[str, ...], in_files: tuple[str, ...]) -> str | None:
    """A text of several labels, if the texts in the files have nothing but these names between separators."""
    known = {spelled_alike(name) for name in names}
    for mark in (*SEPARATORS, *OTHERS):
        if all(spelled_alike(part) in known for value in in_files for part in parts(value, mark)):
            return next((value for value in in_files if len(parts(value, mark)) > 1), None)
    return None


def _in_spelling(names: tuple[str, ...], in_files: tuple[str, ...]) -> tuple[str, ...]:
    files = {spelled_alike(name): name for name in in_files}
    # Hydra keeps 1.0 in a list, and 1.0 in a column of numbers is 1.
    return tuple(
        name if name in in_files else files.get(spelled_alike(name)) or files.get(re.sub(WHOLE, r"\1", name), name)
        for name in names
    )


def _pairs(ours: Iterable[object], names: Sequence[str]) -> str:
    return ", ".join(f"{one} is {name}" for one, name in islice(zip(ours, names, strict=True), _SHOWN))


def _shown(names: tuple[str, ...]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
