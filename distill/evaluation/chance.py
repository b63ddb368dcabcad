"""Scores of models without any skill: the best predictor that outputs the same for every row or guesses classes, or a
random order.

A percentage of the teacher's score does not start at 0: on MRPC, whose rows are mostly paraphrases, the answer
"paraphrase" for every row reaches 68% accuracy and an F1 of 81%.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from distill.data.task_types.answers import NONE, grades
from distill.data.task_types.retrieval import JUDGED
from distill.data.task_types.spans import TAGGED
from distill.data.task_types.task_type import GROUPED
from distill.evaluation import resamples, retained
from distill.evaluation.metrics import METRICS, Metric
from distill.evaluation.metrics import score as metric_scores

SHARE = 0.99
"""A model is near-constant if at least this share of its predictions are the same."""
_DRAWN, _ROWS, _OTHERS = 20, 50, 5
"""Random predictors that are drawn; fewest rows; fewest rows whose target is not the most frequent one."""


def chance(names: Sequence[str], labels: np.ndarray) -> dict[str, float]:
    """Metric -> score in percent of a predictor that does not depend on the text: one predictor for all metrics.

    A metric that has its own `Metric.chance` scores that: a correlation is 0, and a ranking has its expectation over
    all orders of a query's documents, since a constant predictor has no order. For other metrics, several constant
    predictions are scored, and those of the one with the best mean over these metrics count: no single predictor has
    the best F1 and the best accuracy. Where labels are classes, tags of words or choices, each of them is tried. Where
    rows have several labels, no label, all labels and each label alone are tried, and no other combinations. Where
    labels are answers, no answer and the whole context are tried.

    With the mean F1 of classes, guesses are tried too: each class as often as in the labels, and all equally often. A
    constant prediction has no F1 but for one class: of two that are equally frequent its mean is 1/3, and that of a
    guess 1/2.

    Args:
        names: keys of `METRICS`. Raises KeyError for another name.
        labels: `[N]` or `[N, K]` of one split, as metrics take them.

    Raises:
        ValueError: for labels of a ranking and a metric without its own `chance`.
    """
    return _best(names, labels)[0]


def _best(names: Sequence[str], labels: np.ndarray) -> tuple[dict[str, float], bool]:
    """The scores of `chance`, and whether they are those of a guess."""
    own = {name: METRICS[name].chance for name in names}
    tried = [name for name, of in own.items() if of is None]
    constants = _constants(labels) if tried else []
    guesses = [_guesses(labels)] if constants and "f1_macro" in tried else []
    # [predictors, constants] how often each predictor outputs what each constant one does.
    shares = np.concatenate([np.eye(len(constants)), *guesses])
    sums = {name: _sums(METRICS[name], constants, labels) for name in (tried if constants else ())}
    values = dict.fromkeys(tried, np.zeros(1)) | {name: METRICS[name].value(shares @ sums[name]) for name in sums}
    best = int(np.argmax(sum(values.values())))
    scores = {name: 100 * (float(values[name][best]) if of is None else of(labels)) for name, of in own.items()}
    return scores, 0 < len(constants) <= best


def _guesses(labels: np.ndarray) -> np.ndarray:
    """[guesses, classes] how often each class is guessed; no guess where a row has several labels: the mean F1 is then
    larger for all labels in each row."""
    if labels.ndim == 2:
        return np.zeros((0, labels.shape[1] + 2))
    _, counts = np.unique(labels, return_counts=True)
    return np.stack([counts / counts.sum(), np.full(len(counts), 1 / len(counts))])


def _sums(metric: Metric, predictions: Sequence[np.ndarray], labels: np.ndarray) -> np.ndarray:
    """[predictions, S] the sums of a metric over all rows, of predictors that output the same for each."""
    rows, weights = labels, np.ones((1, len(labels)))
    if labels.dtype.kind in "iu" and labels.ndim == 1:  # rows of one class are alike
        rows, counts = np.unique(labels, return_counts=True)
        weights = counts[None].astype(np.float64)
    columns = (metric.columns(each[: len(rows)], rows) for each in predictions)
    return np.concatenate([metric.sums(weights[:, : len(each)], [each])[0] for each in columns])


def beatable(names: Sequence[str], labels: np.ndarray) -> float | None:
    """Mean score in percent of the best predictor without any skill, if a skilled one can be told from it by rows.

    For numbers and rankings it is the best of `_DRAWN` random ones, since half of all random ones are above the mean.
    None where the rows are too few, or have too few different labels: all of one class, a constant predictor is right.
    Arguments and errors are as in `chance`.
    """
    best = fmean(chance(names, labels).values())
    classes = labels["label"] if labels.dtype == TAGGED else labels
    if classes.dtype.kind in "biu":
        return best if len(labels) - np.unique(classes, axis=0, return_counts=True)[1].max() >= _OTHERS else None
    if labels.dtype == GROUPED or labels.dtype.kind == "f":
        drawn = np.random.default_rng(0).normal(size=(_DRAWN, len(labels)))
        best = max(best, *(fmean(metric_scores(names, each, labels).values()) for each in drawn))
    return best if len(labels) >= _ROWS and 0 < best < 100 else None


def _constants(labels: np.ndarray) -> list[np.ndarray]:
    """The predictions of each constant predictor that is tried, as metrics take them."""
    if labels.dtype in (GROUPED, JUDGED):
        raise ValueError(f"labels: got {labels.dtype}; a metric of rankings must have its own `chance`")
    if labels.dtype == object:
        whole = np.array([(0, len(context)) for context, _ in labels])
        return [grades(predicted, labels) for predicted in (np.full_like(whole, NONE), whole)]
    if labels.ndim == 2:
        width = labels.shape[1]
        rows = [np.zeros(width, np.int64), np.ones(width, np.int64), *np.eye(width, dtype=np.int64)]
        return [np.tile(row, (len(labels), 1)) for row in rows]
    values = labels if labels.dtype.names is None else labels["label"]
    return [np.full(len(values), value) for value in np.unique(values)]


def of_tasks(labels: Mapping[tuple[str, str], np.ndarray], names: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Task -> metric -> score in percent of the best predictor of each split, as from `chance`, with the keys of
    `retained.scores`.

    Args:
        labels: (task, split) -> labels `[N]` or `[N, K]` of a reported split.
        names: task -> its metrics. Errors are as from `chance`.
    """
    result: dict[str, dict[str, float]] = {}
    for (task, split), of_split in labels.items():
        for metric, value in chance(names[task], of_split).items():
            result.setdefault(task, {})[retained.key(metric, split)] = value
    return result


def guessed(labels: Mapping[tuple[str, str], np.ndarray], names: Mapping[str, Sequence[str]]) -> list[str]:
    """The tasks of which a guess is the best predictor of a split. Arguments are as of `of_tasks`."""
    # Only with the mean F1 of classes is one tried.
    asked = {key: each for key, each in labels.items() if "f1_macro" in names[key[0]]}
    return list(dict.fromkeys(task for (task, _), each in asked.items() if _best(names[task], each)[1]))


def near_chance(teacher: retained.Scores, floor: retained.Scores) -> list[str]:
    """Tasks on which the 95% interval of the teacher's score includes chance, or is below it.

    Args:
        teacher: its scores `[R]` on resamples, as from `retained.drawn`.
        floor: the scores of the best predictors without skill, as from `of_tasks`, with the same tasks.
    """
    of_teacher, lowest = retained.tasks(teacher), retained.tasks(floor)
    ends = {task: resamples.interval(values) for task, values in of_teacher.items()}
    return [task for task, both in ends.items() if both is not None and both[0] <= lowest[task]]


def near_constant(predictions: retained.Predictions, without: Collection[str] = ()) -> list[str]:
    """Tasks on which at least `SHARE` of the predictions `[N]` or `[N, K]` are the same, on every split.

    without: tasks that are left out because good predictions are the same: most words are in no span, and all values of
        `TaskType.grade` are 1 for answers that are right.
    """
    by_task: dict[str, bool] = {}
    for (task, _), (predicted, _) in predictions.items():
        if task not in without:
            most = np.unique(predicted, axis=0, return_counts=True)[1].max()
            by_task[task] = by_task.get(task, True) and most >= SHARE * len(predicted)
    return [task for task, constant in by_task.items() if constant]
