"""The share of the teacher's score that a student retains, in five ways, with confidence intervals.

The first four differ by more than most methods do: DistilBERT retains 96.9, 96.2, 95.7 or 86.4 percent of BERT's score.
The fifth counts only what is above chance, because a ratio of scores is far above 0 for a model without any skill.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from distill.evaluation import metrics, resamples
from distill.evaluation.record import Interval
from distill.evaluation.results import Retained, Worst

Scores = Mapping[str, Mapping[str, Any]]
"""Task -> metric -> percent, or [R] percent on each of R resamples."""
Predictions = Mapping[tuple[str, str], tuple[np.ndarray, np.ndarray]]
"""(task, split) -> (predictions, labels), as `distill.evaluation.metrics` takes them."""


def scores(predictions: Predictions, names: Mapping[str, Sequence[str]]) -> dict[str, dict[str, float]]:
    """Scores of every task by its metrics `names[task]`, in percent.

    A metric on split `validation_matched` is called e.g. `accuracy_matched`.
    """
    result: dict[str, dict[str, float]] = {}
    for (task, split), (predicted, labels) in predictions.items():
        for metric, value in metrics.score(names[task], predicted, labels).items():
            result.setdefault(task, {})[key(metric, split)] = value
    return result


def key(metric: str, split: str) -> str:
    """The key of a metric on a split among a task's scores."""
    return metric + split.removeprefix("validation").removeprefix("test")


def drawn(
    predictions: Mapping[str, Predictions],
    names: Mapping[str, Sequence[str]],
    resampled: int = resamples.RESAMPLES,
    clusters: Mapping[tuple[str, str], np.ndarray] = MappingProxyType({}),
) -> dict[str, Scores]:
    """Model -> its scores on resamples of the rows, which are the same for all models (see `resamples`).

    Args:
        predictions: model -> its predictions, on the same tasks and splits for all models.
        clusters: (task, split) -> parts of its rows that are drawn together, as `resamples.drawn` takes them; without
            splits whose rows are drawn alone.

    Raises:
        ValueError: for labels that are not the same for all models.
    """
    result: dict[str, dict[str, dict[str, np.ndarray]]] = {model: {} for model in predictions}
    for task, split in next(iter(predictions.values()), {}):
        of_split = {model: each[task, split] for model, each in predictions.items()}
        labels = next(iter(of_split.values()))[1]
        if not all(np.array_equal(labels, other) for _, other in of_split.values()):
            raise ValueError(f"{task} {split}: got other labels for one model; must be the same rows for all models")
        predicted = {model: predicted for model, (predicted, _) in of_split.items()}
        seed, parts = resamples.seed_of(task, split), clusters.get((task, split))
        for model, values in resamples.drawn(names[task], predicted, labels, seed, resampled, parts).items():
            result[model].setdefault(task, {}).update({key(metric, split): each for metric, each in values.items()})
    return dict(result)


def tasks(of_model: Scores) -> dict[str, Any]:
    """Task -> mean of its metrics (and of its splits, if it has several), or [R] of them on resamples."""
    return {task: np.mean(list(values.values()), axis=0) for task, values in of_model.items()}


def macro_score(of_model: Scores, over: Collection[str] | None = None) -> float:
    """Mean over tasks of the mean of a task's metrics, in percent. `over`: the tasks, by default all.

    Raises:
        ValueError: without a task.
    """
    return float(average(of_model, over))


def average(of_model: Scores, over: Collection[str] | None = None) -> Any:
    """`macro_score` of scores, or [R] of scores on resamples.

    Raises:
        ValueError: without a task.
    """
    values = [value for task, value in tasks(of_model).items() if over is None or task in over]
    if not values:
        raise ValueError(f"scores: got {sorted(of_model)}, of which none is in {sorted(over or ())}; must be one")
    return np.mean(values, axis=0)


def _no_ratio(teacher: Scores) -> list[str]:
    """Tasks on which the teacher scores 0 or less (e.g. a Matthews correlation of 0), so that no ratio is defined."""
    return sorted(task for task, value in tasks(teacher).items() if value <= 0)


def _ratio(student: Scores, teacher: Scores, over: Collection[str]) -> float | None:
    if not over:
        return None
    denominator = macro_score(teacher, over)
    return 100 * macro_score(student, over) / denominator if denominator > 0 else None


def retained(student: Scores, teacher: Scores, headline: Collection[str]) -> Retained:
    """Retained percent of the teacher's scores. Student and teacher must be scored on the same tasks.

    macro: ratio of the macro scores over all tasks;
    headline: the same over the tasks of the headline;
    mean_of_ratios: mean of the ratios of the single tasks of the headline;
    worst: the task with the smallest ratio, of all tasks;
    left_out: tasks that do not count because the teacher's score is not above 0.
    The interval is None, as `intervals` has it. A value is None if no task remains for it.

    Args:
        headline: the tasks of the headline (`Task.in_headline`).

    Raises:
        ValueError: for scores on other tasks.
    """
    if set(student) != set(teacher):
        raise ValueError(f"scores: got student {sorted(student)}, teacher {sorted(teacher)}; must be the same")
    left_out = _no_ratio(teacher)
    ours, theirs = tasks(student), tasks(teacher)
    ratios = {task: 100 * ours[task] / theirs[task] for task in theirs if task not in left_out}
    counted = {task: ratio for task, ratio in ratios.items() if task in headline}
    worst = min(ratios, key=ratios.__getitem__, default=None)
    return Retained(
        macro=_ratio(student, teacher, ratios),
        headline=_ratio(student, teacher, counted),
        mean_of_ratios=float(np.mean([*counted.values()])) if counted else None,
        worst=None if worst is None else Worst(task=worst, percent=float(ratios[worst])),
        ci95=None,
        left_out=left_out,
    )


def above_chance(student: Scores, teacher: Scores, chance: Scores, headline: Collection[str]) -> float | None:
    """Percent that a student retains of what the teacher's macro score is above chance, over the tasks of the headline.

    100 (s - c) / (t - c), with the macro scores s of the student, t of the teacher and c of the best constant
    predictors. Tasks on which the teacher scores no more than chance count too: their differences are about 0. None
    where no task remains, or the teacher's macro score is not above chance.
    """
    if not {*teacher} & {*headline}:
        return None
    floor = macro_score(chance, headline)
    skill = macro_score(teacher, headline) - floor
    return 100 * (macro_score(student, headline) - floor) / skill if skill > 0 else None


def intervals(
    student: Scores, teacher: Scores, of_teacher: Scores, headline: Collection[str], chance: Scores | None = None
) -> tuple[Interval | None, Interval | None]:
    """95% intervals of `headline` and, with `chance`, of `above_chance`; None where that is None, and where the
    interval has no end (see `resamples.interval_of_ratios`) or no width (`resamples.with_width`).

    They include the variance of the rows, but not of training, for which several seeds are needed. Constant predictors
    are scored on all rows.

    Args:
        student, teacher: scores on resamples of the same rows, as from `drawn`.
        of_teacher: scores on all rows, which decide the tasks of the ratio, as in `retained`.
        headline: the tasks of the headline.
    """
    counted = [task for task in teacher if task in headline]
    over = with_ratio(of_teacher, headline)
    ratio = _interval(student, teacher, over, 0.0) if over else None
    if chance is None or above_chance(of_teacher, of_teacher, chance, headline) is None:
        return ratio, None
    return ratio, _interval(student, teacher, counted, macro_score(chance, counted))


def _interval(student: Scores, teacher: Scores, over: Collection[str], floor: float) -> Interval | None:
    """Of `_drawn_ratios`."""
    ends = resamples.interval_of_ratios(_drawn_ratios(student, teacher, over, floor))
    return resamples.with_width(ends)


def at_least(student: Scores, teacher: Scores, of_teacher: Scores, headline: Collection[str]) -> float | None:
    """Lower end of the one-sided 95% interval of `headline`, with the arguments of `intervals`: a test of whether a
    student is not inferior, at the 5% level. None where no such end is known."""
    over = with_ratio(of_teacher, headline)
    return resamples.lower_end(_drawn_ratios(student, teacher, over, 0.0)) if over else None


def with_ratio(teacher: Scores, headline: Collection[str]) -> list[str]:
    """The tasks of the headline that have a ratio."""
    left_out = _no_ratio(teacher)
    return [task for task in teacher if task in headline and task not in left_out]


def _drawn_ratios(student: Scores, teacher: Scores, over: Collection[str], floor: float) -> np.ndarray:
    """[R] percent of what the teacher's score is above the floor on each resample; NaN where that is nothing."""
    above, below = average(student, over) - floor, average(teacher, over) - floor
    ratios: np.ndarray = 100 * np.divide(above, below, out=np.full(len(below), np.nan), where=below > 0)
    return ratios
