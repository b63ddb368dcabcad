"""Checks of the settings of tasks, before any file is opened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from distill.config import Task, Tasks, names
from distill.data.task import chosen, is_own
from distill.data.task_types import TASK_TYPES
from distill.pipeline.validation.rules import existing, nearest
from distill.pipeline.validation.system import system_files
from distill.runtime import quoting


def tasks(settings: Tasks) -> Iterator[str]:
    """Problems of the tasks."""
    every = chosen(settings)
    yield from _sources(settings, every)
    yield from _alike(every)
    used = [task for name, task in every.items() if name in (settings.names or every)]
    if used and not any(task.in_headline for task in used):
        key = "tasks" if is_own(settings) else "tasks.each.*"
        yield (
            f"{key}.in_headline: got false for every task; must be true for one task or more, over which "
            "retained % is computed; add such a task, or leave the setting out"
        )
    for name in settings.names or []:
        if name not in every:
            yield f"tasks.names: got {name}; must be one of {', '.join(every)}; {nearest(name, list(every))}"
    for name, task in every.items():
        if not names.is_valid(name):
            own = is_own(settings)
            mend = f"set {quoting.setting('tasks.name', names.mended(name))}" if own else "rename the task"
            yield (
                f"{'tasks.name' if own else f'tasks.each.{name}'}: got {name!r} as the name of a task; must be "
                f"{names.RULE}, because it names folders of the run; {mend}"
            )
        key = "tasks" if is_own(settings) else f"tasks.each.{name}"
        for source in ("train", "validation", "test", "development"):
            yield from system_files(f"{key}.{source}", getattr(task, source), settings.path)
        yield from _task(key, task)


def _alike(every: Iterable[str]) -> Iterator[str]:
    """Problems of tasks whose folders would be one folder."""
    first: dict[str, str] = {}
    for name in every:
        if (other := first.setdefault(names.folded(name), name)) != name:
            yield (
                f"tasks.each.{name}: got {name!r} beside {other!r} as names of tasks; must differ in more than case, "
                "because some file systems have one folder for both; rename one of the tasks"
            )


def _sources(settings: Tasks, every: dict[str, Task]) -> Iterator[str]:
    """Problems of the files, folders and data sets of all tasks."""
    if not every and (settings.validation, settings.test, settings.development) == (None, None, None):
        yield "tasks.train: got nothing; must be a file with labelled rows; set tasks.train=FILE"
    if settings.train is not None and settings.hub is not None:
        yield f"tasks.hub: got {settings.hub}; must be null with tasks.train; leave one of them out"
    if settings.train is None and settings.hub is None:
        for name in ("validation", "test", "development"):
            if getattr(settings, name) is not None:
                yield f"tasks.train: got nothing; must be set with tasks.{name}; set tasks.train=FILE"
    if settings.path is not None and not any(task.train for task in every.values()):
        yield f"tasks.path: got {settings.path}; must be null where rows are not from files; add tasks=glue"
    elif settings.path is not None:
        yield from existing("tasks.path", settings.path, "a folder of task files, e.g. in the layout of nyu-mll/glue,")


def _task(key: str, task: Task) -> Iterator[str]:
    """Problems of one task. `key`: its setting."""
    if task.train is None and task.hub is None and not task.docstrings:
        yield f"{key}.train: got nothing; must be a file with labelled rows; set {key}.train=FILE"
    yield from _files(key, task)
    kinds = [TASK_TYPES[task.kind]] if task.kind in TASK_TYPES else list(TASK_TYPES.values())
    metrics = list(dict.fromkeys(metric for kind in kinds for metric in kind.all_metrics))
    for metric in task.metrics or []:
        if metric not in metrics:
            yield f"{key}.metrics: got {metric}; must be of {', '.join(metrics)}; {nearest(metric, metrics)}"
    if task.metrics == []:
        yield f"{key}.metrics: got []; must be one or more of {', '.join(metrics)}; leave it out for those of its kind"
    if task.kind is not None and task.kind not in TASK_TYPES:
        yield f"{key}.kind: got {task.kind}; must be {' or '.join(TASK_TYPES)}; null chooses it by the labels"
    if task.threshold is not None and not 0 < task.threshold < 1:
        yield f"{key}.threshold: got {task.threshold:g}; must be between 0 and 1; 0.5 is the default"
    if task.prompts is not None and len(task.prompts) != 2:
        yield (
            f"{key}.prompts: got {task.prompts}; must be two texts, put before first and second texts; set e.g. "
            f"{quoting.setting(f'{key}.prompts', ['query: ', 'passage: '])}"
        )
    yield from _labels(key, task)
    used = [task.text, task.text_pair, *(task.label if isinstance(task.label, list) else [task.label])]
    if task.soft_label is not None and task.soft_label in used:
        yield f"{key}.soft_label: got {task.soft_label}; must be another column than text and label; correct it"


def _files(key: str, task: Task) -> Iterator[str]:
    """Problems of the form of the settings of a task's files. Whether they exist is seen when they are read."""
    for name in ("train", "test", "development"):
        if isinstance(getattr(task, name), dict):
            yield f"{key}.{name}: got {getattr(task, name)}; must be a file or a list of files; name the files alone"
    if isinstance(task.validation, dict):
        for split in sorted({"train", "test", "development"} & {*task.validation}):
            yield f"{key}.validation: got a split {split}; must have another name; set {key}.{split}=FILE"
        if not task.validation:
            yield f"{key}.validation: got {{}}; must name a split and its file; leave it out"


def _labels(key: str, task: Task) -> Iterator[str]:
    """Problems of the settings of a task's labels and text columns."""
    if task.range is not None and not (len(task.range) == 2 and task.range[0] < task.range[1]):
        yield f"{key}.range: got {task.range}; must be [lowest, highest]; e.g. [0,5]"
    labels = {label.strip().casefold() for label in task.labels or ()}
    if task.labels is not None and (len(labels) < 2 or len(labels) < len(task.labels)):
        yield f"{key}.labels: got {task.labels}; must be two different labels or more; e.g. [no,yes]"
    several = isinstance(task.label, list)
    if several and len({*map(str, task.label)}) < len(task.label):
        yield f"{key}.label: got {task.label}; must be different columns; name each once"
    elif several and (task.kind not in (None, "multi_label") or len(task.label) < 2):
        yield f"{key}.label: got {task.label}; must be one column, or for multi_label two or more; name one"
    choices = task.choices
    if isinstance(choices, list) and (len(choices) < 2 or len({*map(str, choices)}) < len(choices)):
        yield f"{key}.choices: got {choices}; must be one column of lists, or two columns or more; name each once"
    elif choices is not None and not isinstance(choices, str | list):
        yield f"{key}.choices: got {choices}; must be the name of a column, or a list of them; correct it"
    if task.label is not None and not several and not isinstance(task.label, str):
        yield f"{key}.label: got {task.label}; must be the name of a column; correct it"
    if task.kind in TASK_TYPES and TASK_TYPES[task.kind].per_token and task.text_pair is not None:
        yield f"{key}.text_pair: got {task.text_pair}; must be null for {task.kind}; leave it out"
    if task.text is None and task.text_pair is not None:
        yield f"{key}.text: got nothing; must be set where {key}.text_pair is; set {key}.text=COLUMN"
