"""Checks of the settings of tasks, before any file is opened."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from distill.config import Task, Tasks, names
from distill.data.class_weights import BALANCED
from distill.data.task import chosen, is_own
from distill.data.task_types import TASK_TYPES
from distill.errors import Line, Problem
from distill.pipeline.validation.rules import alike, existing, nearest
from distill.pipeline.validation.system import system_files
from distill.runtime import quoting

_OF_ONE = ("docstrings", "in_headline", "rows")
"""Settings that a task never leaves null, so that it takes none of them from all tasks."""


def tasks(settings: Tasks) -> Iterator[Line]:
    """Problems of the tasks."""
    every = chosen(settings)
    yield from _sources(settings, every)
    yield from alike("tasks.each", every, "tasks")
    used = [task for name, task in every.items() if name in (settings.names or every)]
    if used and not any(task.in_headline for task in used):
        key = "tasks" if is_own(settings) else "tasks.each.*"
        yield Problem(
            f"{key}.in_headline",
            "false for every task",
            "be true for one task or more, over which retained % is computed",
            "add such a task, or leave the setting out",
        )
    for name in settings.names or []:
        if name not in every:
            yield Problem("tasks.names", name, f"be one of {', '.join(every)}", nearest(name, list(every)))
    for name, task in every.items():
        if not names.is_valid(name):
            own = is_own(settings)
            mend = f"set {quoting.setting('tasks.name', names.mended(name))}" if own else "rename the task"
            yield Problem(
                "tasks.name" if own else f"tasks.each.{name}",
                f"{name!r} as the name of a task",
                f"be {names.RULE}, because it names folders of the run",
                mend,
            )
        key = "tasks" if is_own(settings) else f"tasks.each.{name}"
        for source in ("train", "validation", "test", "development"):
            yield from system_files(f"{key}.{source}", getattr(task, source), settings.path)
        yield from _task(key, task)


def _sources(settings: Tasks, every: dict[str, Task]) -> Iterator[Line]:
    """Problems of the files, folders and data sets of all tasks."""
    if not every and (settings.validation, settings.test, settings.development) == (None, None, None):
        yield Problem("tasks.train", "nothing", "be a file with labelled rows", "set tasks.train=FILE")
    if settings.train is None and settings.hub is None:
        for name in ("validation", "test", "development"):
            if getattr(settings, name) is not None:
                yield Problem("tasks.train", "nothing", f"be set with tasks.{name}", "set tasks.train=FILE")
    for name in _OF_ONE if settings.each and not is_own(settings) else ():
        if (got := getattr(settings, name)) != getattr(Task(), name):
            own = f"tasks.each.{next(iter(every))}.{name}"
            yield Problem(f"tasks.{name}", str(got).lower(), "be set for one task of several", f"set e.g. {own}")
    if settings.path is not None and any(task.train for task in every.values()):
        yield from existing("tasks.path", settings.path, "a folder of task files, e.g. in the layout of nyu-mll/glue,")


def _task(key: str, task: Task) -> Iterator[Line]:
    """Problems of one task. `key`: its setting."""
    if task.train is None and task.hub is None and not task.docstrings:
        yield Problem(f"{key}.train", "nothing", "be a file with labelled rows", f"set {key}.train=FILE")
    yield from _files(key, task)
    kinds = [TASK_TYPES[task.kind]] if task.kind in TASK_TYPES else list(TASK_TYPES.values())
    metrics = list(dict.fromkeys(metric for kind in kinds for metric in kind.all_metrics))
    for metric in task.metrics or []:
        if metric not in metrics:
            yield Problem(f"{key}.metrics", metric, f"be of {', '.join(metrics)}", nearest(metric, metrics))
    if task.metrics == []:
        yield Problem(
            f"{key}.metrics", "[]", f"be one or more of {', '.join(metrics)}", "leave it out for those of its kind"
        )
    if task.kind is not None and task.kind not in TASK_TYPES:
        yield Problem(f"{key}.kind", task.kind, f"be {' or '.join(TASK_TYPES)}", "null chooses it by the labels")
    if task.threshold is not None and not 0 < task.threshold < 1:
        yield Problem(f"{key}.threshold", f"{task.threshold:g}", "be between 0 and 1", "0.5 is the default")
    if task.prompts is not None and len(task.prompts) != 2:
        yield Problem(
            f"{key}.prompts",
            task.prompts,
            "be two texts, put before first and second texts",
            f"set e.g. {quoting.setting(f'{key}.prompts', ['query: ', 'passage: '])}",
        )
    yield from _labels(key, task)
    yield from _class_weight(key, task.class_weight)
    used = [task.text, task.text_pair, *(task.label if isinstance(task.label, list) else [task.label])]
    if task.soft_label is not None and task.soft_label in used:
        yield Problem(f"{key}.soft_label", task.soft_label, "be another column than text and label", "correct it")


def _class_weight(key: str, given: Any) -> Iterator[Line]:
    weights = [given] if not isinstance(given, dict) else [*given.values()]
    if given not in (None, BALANCED) and not (isinstance(given, dict) and weights and all(map(_is_weight, weights))):
        example = quoting.setting(f"{key}.class_weight", {"LABEL": 10})
        yield Problem(
            f"{key}.class_weight", given, f"be {BALANCED}, or finite weights above 0 of labels", f"e.g. {example}"
        )


def _is_weight(value: Any) -> bool:
    """Whether a value, which may be written as text, is a finite number above 0."""
    try:
        return not isinstance(value, bool) and 0 < float(value) < math.inf
    except (TypeError, ValueError):
        return False


def _files(key: str, task: Task) -> Iterator[Line]:
    """Problems of the form of the settings of a task's files. Whether they exist is seen when they are read."""
    for name in ("train", "test", "development"):
        if isinstance(getattr(task, name), dict):
            yield Problem(f"{key}.{name}", getattr(task, name), "be a file or a list of files", "name the files alone")
    if isinstance(task.validation, dict):
        for split in sorted({"train", "test", "development"} & {*task.validation}):
            yield Problem(f"{key}.validation", f"a split {split}", "have another name", f"set {key}.{split}=FILE")
        if not task.validation:
            yield Problem(f"{key}.validation", "{}", "name a split and its file", "leave it out")


def _labels(key: str, task: Task) -> Iterator[Line]:
    """Problems of the settings of a task's labels and text columns."""
    if task.range is not None and not (len(task.range) == 2 and task.range[0] < task.range[1]):
        yield Problem(f"{key}.range", task.range, "be [lowest, highest]", "e.g. [0,5]")
    labels = {label.strip().casefold() for label in task.labels or ()}
    if task.labels is not None and (len(labels) < 2 or len(labels) < len(task.labels)):
        yield Problem(f"{key}.labels", task.labels, "be two different labels or more", "e.g. [no,yes]")
    several = isinstance(task.label, list)
    if several and len({*map(str, task.label)}) < len(task.label):
        yield Problem(f"{key}.label", task.label, "be different columns", "name each once")
    elif several and (task.kind not in (None, "multi_label") or len(task.label) < 2):
        yield Problem(f"{key}.label", task.label, "be one column, or for multi_label two or more", "name one")
    choices = task.choices
    if isinstance(choices, list) and (len(choices) < 2 or len({*map(str, choices)}) < len(choices)):
        yield Problem(f"{key}.choices", choices, "be one column of lists, or two columns or more", "name each once")
    elif choices is not None and not isinstance(choices, str | list):
        yield Problem(f"{key}.choices", choices, "be the name of a column, or a list of them", "correct it")
    if task.label is not None and not several and not isinstance(task.label, str):
        yield Problem(f"{key}.label", task.label, "be the name of a column", "correct it")
    if task.kind in TASK_TYPES and TASK_TYPES[task.kind].per_token and task.text_pair is not None:
        yield Problem(f"{key}.text_pair", task.text_pair, f"be left out for {task.kind}", "leave it out")
    if task.text is None and task.text_pair is not None:
        yield Problem(f"{key}.text", "nothing", f"be set where {key}.text_pair is", f"set {key}.text=COLUMN")
