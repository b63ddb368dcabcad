"""The measurements of one evaluation, of which results.json is made."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from dataclasses import replace as replace_variant
from typing import Any

import numpy as np

from distill.config.loads import SINGLE, SINGLE_TEXTS
from distill.config.schemes import COMPILED
from distill.data.tasks import TaskData
from distill.evaluation import chance, retained
from distill.evaluation.clusters import clusters
from distill.evaluation.time_results import KEPT
from distill.inference.timing import TASK_LENGTHS, Timed
from distill.inference.variants import REFERENCE, Variant, is_reference

Outputs = dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]
"""(task, split) -> outputs [n, C] and labels."""


@dataclass(frozen=True)
class Measured:
    """All measurements of one evaluation."""

    tasks: dict[str, TaskData]
    variants: Sequence[Variant]
    outputs: dict[str, Outputs]
    timed: Timed
    served: Mapping[str, Mapping[str, Any]]
    """Variant -> `cold_start_ms` and `memory_mib` of a process that serves it; without variants that none served."""
    cuda: bool
    """Whether torch ran on a GPU."""
    load: str
    """How the models will be asked, as in `config.loads`."""
    development: dict[str, Outputs] = field(default_factory=dict)
    """Variant -> outputs and labels of rows that are not reported, on which its temperatures are chosen."""
    lengths: Mapping[tuple[str, str], np.ndarray] = field(default_factory=dict)
    """(task, split) -> [n] tokens of each row."""

    seen: Set[tuple[str, str]] = frozenset()
    """(variant, task) whose development rows the model may have been trained on, before this run. There are no other
    rows to choose its forms on: a report names these tasks beside the choice."""

    def unseen(self, name: str) -> Outputs:
        """The outputs of a variant on development rows by which its temperature and thresholds may be chosen."""
        given = self.development.get(name, {})
        return {(task, split): each for (task, split), each in given.items() if (name, task) not in self.seen}

    @property
    def input(self) -> str:
        """The timed inputs of the run's load."""
        return SINGLE_TEXTS if self.load == SINGLE else TASK_LENGTHS

    @functools.cached_property
    def references(self) -> list[Variant]:
        """The variants of the teacher over the fastest of which speedups are given."""
        return [v for v in self.variants if is_reference(v, self.cuda) and v.name in self.timed.times]

    @functools.cached_property
    def kept(self) -> list[Variant]:
        """These, and the variants of the teacher that keep `KEPT` percent of its score on the development rows. Of
        variants with the same arithmetic, the one that was scored speaks for all."""

        def keeps(variant: Variant) -> bool:
            scored = replace_variant(variant, scheme=variant.scheme.removesuffix(COMPILED)).name
            return (on_development(scored, self) or 0.0) >= KEPT

        every = [v for v in self.variants if v.role == "teacher" and v.name in self.timed.times]
        return [v for v in every if v in self.references or keeps(v)]

    @functools.cached_property
    def names(self) -> dict[str, tuple[str, ...]]:
        """Task -> its metrics."""
        return {task: data.task.metrics for task, data in self.tasks.items()}

    @functools.cached_property
    def headline(self) -> list[str]:
        """The tasks of the headline."""
        return [task for task, data in self.tasks.items() if data.task.in_headline]

    @functools.cached_property
    def predictions(self) -> dict[str, retained.Predictions]:
        """Variant -> its predictions; empty for one that is only timed."""
        return {variant.name: graded(self, self.outputs[variant.name]) for variant in self.variants}

    @functools.cached_property
    def clusters(self) -> dict[tuple[str, str], np.ndarray]:
        """(task, split) -> parts of its rows that are drawn together, of splits some of whose rows share a text. Kinds
        with groups draw these."""
        found = dict[tuple[str, str], np.ndarray]()
        for task, split in self.predictions[REFERENCE]:
            data, alone = self.tasks[task], self.predictions[REFERENCE][task, split][1].dtype.names is None
            parts = clusters([data.reported[split][name] for name in data.task.columns]) if alone else None
            found |= {} if parts is None else {(task, split): parts}
        return found

    @functools.cached_property
    def drawn(self) -> dict[str, retained.Scores]:
        """Variant -> its scores on resamples, for variants that were scored on all tasks."""
        every = self.predictions[REFERENCE].keys()
        whole = {name: each for name, each in self.predictions.items() if each.keys() == every}
        return retained.drawn(whole, self.names, clusters=self.clusters)

    @functools.cached_property
    def development_chance(self) -> dict[str, dict[str, float]]:
        """As `chance`, on the rows on which choices are made."""
        return chance.of_tasks({key: each for key, (_, each) in self.development[REFERENCE].items()}, self.names)

    @functools.cached_property
    def chance(self) -> dict[str, dict[str, float]]:
        """The scores of the best predictors without skill."""
        return chance.of_tasks(self._labels, self.names)

    @functools.cached_property
    def guessed(self) -> list[str]:
        """The tasks of which these guess classes."""
        return chance.guessed(self._labels, self.names)

    @property
    def _labels(self) -> dict[tuple[str, str], np.ndarray]:
        return {key: labels for key, (_, labels) in self.predictions[REFERENCE].items()}


def graded(measured: Measured, every: Outputs) -> retained.Predictions:
    """The predictions that outputs stand for, with their labels."""
    return {
        (task, split): (measured.tasks[task].task.graded(outputs, labels), labels)
        for (task, split), (outputs, labels) in every.items()
    }


def development_scores(name: str, measured: Measured) -> dict[str, dict[str, float]] | None:
    """The scores on the rows on which choices are made; None unless all tasks of the headline have such rows."""
    rows = graded(measured, measured.development.get(name, {}))
    if not measured.headline or not {task for task, _ in rows}.issuperset(measured.headline):
        return None
    return retained.scores(rows, measured.names)


def development_macro(name: str, measured: Measured) -> float | None:
    """The macro score of these over the tasks of the headline."""
    scores = development_scores(name, measured)
    return None if scores is None else retained.macro_score(scores, measured.headline)


def on_development(name: str, measured: Measured, above: bool = False) -> float | None:
    """The retained % of the headline on the rows on which choices are made; None unless all tasks of the headline have
    such rows.

    Args:
        above: of what the teacher's score is above chance.
    """
    ours, theirs = (development_scores(each, measured) for each in (name, REFERENCE))
    if ours is None or theirs is None or ours.keys() != theirs.keys():
        return None
    if not above:
        return retained.retained(ours, theirs, measured.headline).headline
    return retained.above_chance(ours, theirs, measured.development_chance, measured.headline)
