"""A task whose columns, kind and labels are known, and the tasks that a config chooses. Without torch."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from distill import config
from distill.config import names
from distill.data.class_weights import ClassWeight
from distill.data.task_types import TaskType, kind_of_model
from distill.models.families.head import by_number, without_defaults

UNNAMED = ("train", "training", "data", "dataset")
"""Names of files that do not name a task. It is named after their folder."""


@dataclass(frozen=True)
class Task:
    """A task: its kind, columns, labels and metrics."""

    name: str
    kind: TaskType
    columns: tuple[str, ...]
    """The text column, or the two columns of a text pair."""
    labels: tuple[str, ...]
    """Names of the labels, in the order of the model's outputs; empty for a number."""
    metrics: tuple[str, ...]
    """Names of metrics in distill.evaluation; their mean is the task's score."""
    range: tuple[float, float] | None = None
    """Lowest and highest label of a number."""
    threshold: float = 0.5
    """Probability above which a label of multi_label is output, or no answer of question_answering."""
    prompts: tuple[str, ...] = ()
    """The prompts before the first text and before the second; empty without prompts."""
    choices: tuple[str, ...] = ()
    """The column with the choices of each row, or several with one each."""
    in_headline: bool = True
    """Whether it counts in the headline of a report and in choices between models."""
    class_weight: ClassWeight = None
    """Weights of its labels in terms that compare with labels."""
    member_prompts: tuple[tuple[str, ...], ...] = ()
    """The `prompts` of each of several teachers; empty if all read with those of the task."""

    @property
    def in_pairs(self) -> bool:
        """Whether each row has two texts."""
        return len(self.columns) == 2

    @property
    def queries(self) -> str | None:
        """The text column with the queries of rankings, whose rows are scored together; None for other kinds.

        For retrieval, the documents of all rows are ranked, so that rows may be left out.
        """
        return self.columns[0] if self.kind.grouped and not self.kind.separate else None

    @property
    def outputs(self) -> int:
        """Number of the model's outputs."""
        return len(self.labels) or self.kind.outputs

    def predictions(self, outputs: np.ndarray) -> np.ndarray:
        """Predictions [n] or [n, labels] for outputs [n, outputs], in the form that metrics take: class numbers, 0 or
        1, numbers, or codes of tags."""
        return self.kind.decode(outputs, self.labels, self.threshold)

    def graded(self, outputs: np.ndarray, truth: np.ndarray) -> np.ndarray:
        """The argument of metrics besides the truth: predictions [n] or [n, labels] or, for kinds with `grade`, values
        [n, metrics]."""
        predicted = self.predictions(outputs)
        return predicted if self.kind.grade is None else self.kind.grade(predicted, truth)


def task_of_model(name: str, config: Any, architecture: str, columns: tuple[str, ...] = ()) -> Task:
    """The task of a model that is known only by its config and its architecture: its kind, the labels of the config,
    and the metrics of the kind."""
    kind = kind_of_model(getattr(config, "problem_type", None), config.num_labels, architecture)
    labels: tuple[str, ...] = ()
    if kind.named:
        stated = tuple(str(config.id2label[number]) for number in range(config.num_labels))
        labels = without_defaults(stated) or by_number(config.label2id, config.num_labels) or stated
    return Task(name, kind, columns, labels, kind.metrics)


def is_own(tasks: config.Tasks) -> bool:
    """Whether `tasks` itself is the only task, given by files or by a data set on the hub."""
    return tasks.train is not None or tasks.hub is not None


def chosen(tasks: config.Tasks) -> dict[str, config.Task]:
    """Name -> settings of every task, in `tasks.names` or not. A setting that a task leaves null is taken from
    `tasks`."""
    if is_own(tasks):
        return {own_name(tasks): config.Task(**{f.name: getattr(tasks, f.name) for f in fields(config.Task)})}
    shared = {f.name: getattr(tasks, f.name) for f in fields(config.Task) if f.name not in ("train", "hub")}
    shared = {name: value for name, value in shared.items() if value not in (None, {})}
    return {
        name: replace(task, **{key: value for key, value in shared.items() if getattr(task, key) is None})
        for name, task in tasks.each.items()
    }


def ignorable(tasks: config.Tasks, name: str) -> tuple[str, ...]:
    """Settings that a task takes from all, and that kinds of tasks which have none ignore."""
    own = is_own(tasks) or tasks.each[name].class_weight is not None
    return () if own else ("class_weight",)


def own_name(tasks: config.Tasks) -> str:
    """Name of the task that `tasks` itself is: `tickets` for `data/tickets.csv` and for `tickets/train.csv`."""
    return names.mended(_plain_name(tasks)) if tasks.name is None else tasks.name


def renamed(tasks: config.Tasks) -> str | None:
    """A line if the task is not called as its file or data set, because a run could not have a folder of that name."""
    if not is_own(tasks) or tasks.name is not None or own_name(tasks) == (plain := names.plain(_plain_name(tasks))):
        return None
    return f"{own_name(tasks)}: the name of the task, as {plain} cannot name a folder of a run; tasks.name sets another"


def _plain_name(tasks: config.Tasks) -> str:
    """The name of the data set, file or folder after which the task is called."""
    if tasks.hub is not None:
        return tasks.hub.split("/")[1 if tasks.hub.count("/") else 0]
    first = tasks.train[0] if isinstance(tasks.train, list) and tasks.train else tasks.train
    path = Path(str(first))
    while path.suffix and path.stem:
        path = path.with_suffix("")
    stem = path.name.strip("*_-. ")
    if re.split(r"[-_.*]", stem)[0].lower() in UNNAMED:
        stem = path.absolute().parent.name
    return stem


@cache
def names_in(group: str) -> tuple[str, ...]:
    """Names of the tasks in `conf/tasks/GROUP.yaml`."""
    return tuple(_group(group)["each"])


def about(names: set[str]) -> str | None:
    """The sentence about the group in `conf/tasks` that has all these tasks; None without such a group."""
    for file in sorted((config.folder("conf") / "tasks").glob("*.yaml")):
        group = _group(file.stem)
        if names and names <= set(group.get("each", ())):
            return group.get("about")
    return None


@cache
def _group(name: str) -> dict[str, Any]:
    file = config.folder("conf") / "tasks" / f"{name}.yaml"
    return yaml.safe_load(file.read_text(encoding="utf-8"))
