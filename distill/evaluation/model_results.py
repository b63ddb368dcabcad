"""The rows of results.json: the measurements of each variant, and the tests between them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET
from msgspec.structs import asdict, replace

from distill.config.loads import SINGLE_TEXTS
from distill.data.tasks import TaskData
from distill.evaluation import (
    asymmetric,
    calibration,
    chance,
    detection,
    few_rows,
    model_times,
    resamples,
    retained,
    significance,
)
from distill.evaluation.entities import entities
from distill.evaluation.kind_results import VectorForm
from distill.evaluation.lengths import by_length
from distill.evaluation.measured import Measured, Outputs, development_macro, graded, on_development
from distill.evaluation.results import (
    Calibration,
    Identity,
    Model,
    OfLength,
    Retained,
    Statistics,
)
from distill.evaluation.vector_forms import of_tasks
from distill.inference.cost import gmacs, parameters, size_mib, total
from distill.inference.timing import TASK_LENGTHS, TASK_ROWS
from distill.inference.variants import REFERENCE, Variant


def identity(variant: Variant) -> Identity:
    return Identity(name=variant.label, scheme=variant.scheme, backend=variant.backend)


def unmeasured(variant: Variant) -> Model:
    """What is known of a variant before it is measured."""
    return Model(
        **asdict(identity(variant)),
        role=variant.role,
        step=variant.step.stage,
        target=variant.target or None,
        member=UNSET if variant.member is None else variant.member + 1,
    )


def row(
    variant: Variant,
    measured: Measured,
    sources: Sequence[Path],
    paths: Sequence[Path],
    run: Path,
    one_encoder: bool = False,
) -> Model:
    """One row of `models`.

    Args:
        sources: its float checkpoints.
        paths: the files that are run.
        run: the run folder.
        one_encoder: whether the checkpoints have the same encoder, which then counts once.
    """
    own, times = measured.predictions[variant.name], measured.timed.times[variant.name]
    scores = retained.scores(own, measured.names)
    inside = paths[0] if len(paths) == 1 and paths[0].is_relative_to(run) else None
    rate = 1000 * TASK_ROWS / float(np.median(times[TASK_LENGTHS]))
    return replace(
        unmeasured(variant),
        path=None if inside is None else str(inside.relative_to(run)),
        parameters=total(parameters, sources, one_encoder),
        size_mib=total(size_mib, paths, one_encoder and len(paths) > 1),
        gmacs=total(gmacs, sources, one_encoder),
        latency_ms=[model_times.of_input(inputs, values) for inputs, values in times.items() if inputs != SINGLE_TEXTS],
        throughput_per_second=rate,
        requests=model_times.of_single_texts(times[SINGLE_TEXTS], measured.timed.distinct),
        requests_ms=[round(value, 4) for value in times[SINGLE_TEXTS]],
        from_text={inputs: model_times.from_text(variant, measured, inputs) for inputs in (TASK_LENGTHS, SINGLE_TEXTS)},
        **(measured.served.get(variant.name) or {"cold_start_ms": None, "memory_mib": None}),
        energy_j=measured.timed.energy.get(variant.name),
        energy_missing=measured.timed.energy_missing or "",
        scores=scores,
        macro=retained.macro_score(scores) if scores else None,
        development_macro=development_macro(variant.name, measured),
        calibration_error=_calibration_error(described := _calibration(variant.name, measured)),
        calibration=described,
        **(of_predictions(variant.name, measured) if scores else {}),
        recall=_recall(own, measured.tasks),
        **of_kinds(variant.name, measured),
        teachers_index=teachers_index(variant.name, measured),
        vectors=vectors(variant, measured),
        retained=_retained(variant.name, measured) if scores and variant.name != REFERENCE else None,
        speedup=model_times.speedup(variant, measured),
    )


def _recall(own: retained.Predictions, tasks: dict[str, TaskData]) -> dict[str, dict[str, float]]:
    """Task -> label, or type of spans -> percent of its rows that are predicted, on the first reported split."""
    result: dict[str, dict[str, float]] = {}
    for (name, _), (predicted, labels) in own.items():
        if (task := tasks[name].task).kind.recalled is not None and name not in result:
            by_label = task.kind.recalls(predicted, labels, task.labels)
            result[name] = {label: percent for label, (percent, _) in by_label.items()}
    return result


def of_kinds(name: str, measured: Measured) -> dict[str, Any]:
    """The fields that only some kinds of tasks have."""
    own, spans = measured.predictions[name], dict[str, Any]()
    others = {
        task: [metric for metric in data.task.kind.beside if metric not in data.task.metrics]
        for task, data in measured.tasks.items()
    }
    for (task, _), (predicted, labels) in own.items():
        if (of := measured.tasks[task].task).kind.per_token and task not in spans:
            spans[task] = entities(predicted, labels, of.labels)
    told = (_told(outputs, measured.tasks) for outputs in (measured.outputs[name], measured.unseen(name)))
    return {
        "beside": retained.scores({key: each for key, each in own.items() if others[key[0]]}, others),
        "detection": detection.every(*told),
        "entities": spans,
    }


def teachers_index(name: str, measured: Measured) -> dict[str, dict[str, float]]:
    """Task -> metrics of a variant's queries against the documents of the teacher in float32; empty for that."""
    if name == REFERENCE:
        return {}
    kinds = {task: data.task.kind for task, data in measured.tasks.items()}
    mixed = asymmetric.on_index(measured.outputs[name], measured.outputs[REFERENCE], kinds)
    return retained.scores(graded(measured, mixed), measured.names)


def vectors(variant: Variant, measured: Measured) -> dict[str, dict[str, VectorForm]]:
    """Task -> smaller forms of the vectors of an embedder in torch float32; empty for its other variants, which would
    repeat them, and for several teachers together, whose first components are those of the first."""
    joint = variant.role == "teacher" and any(other.role == "member" for other in measured.variants)
    if joint or (variant.backend, variant.scheme) != ("torch", "fp32"):
        return {}
    return of_tasks(measured.outputs[variant.name], measured.tasks, measured.names)


def _told(outputs: Outputs, tasks: dict[str, TaskData]) -> dict[str, list[dict[str, detection.Rows]]]:
    """Task -> for each split, its labels that may be detected with their rows."""
    parts: dict[str, list[dict[str, detection.Rows]]] = {}
    for (name, _), (logits, truth) in outputs.items():
        task = tasks[name].task
        parts.setdefault(name, []).append(detection.of_labels(task.kind, task.labels, logits, truth))
    return parts


def _calibrated(outputs: Outputs, tasks: dict[str, TaskData]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Task -> logits [R, C] and labels [R] of all its splits, of tasks with classes or labels for texts."""
    parts: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for (name, _), (logits, labels) in outputs.items():
        kind = tasks[name].task.kind
        if kind.named and not kind.per_token:
            parts.setdefault(name, []).append((kind.rows(logits), labels.ravel()))
    return {
        name: (np.concatenate([logits for logits, _ in each]), np.concatenate([labels for _, labels in each]))
        for name, each in parts.items()
    }


def _calibration(name: str, measured: Measured) -> dict[str, Calibration]:
    """Task -> calibration of a variant, with the temperature that fits its development rows best."""
    own = _calibrated(measured.outputs[name], measured.tasks)
    other = _calibrated(measured.unseen(name), measured.tasks)
    chosen = {task: calibration.temperature(*other[task]) for task in own if task in other}
    return {task: calibration.described(*each, chosen.get(task)) for task, each in own.items()}


def _calibration_error(described: Mapping[str, Calibration]) -> float | None:
    """Mean over tasks with classes or labels; None without such a task with predictions."""
    errors = [each.ece for each in described.values()]
    return float(np.mean(errors)) if errors else None


def of_predictions(name: str, measured: Measured) -> dict[str, Any]:
    """The fields of a scored variant that depend on its predictions alone."""
    own, kinds = measured.predictions[name], {task: data.task.kind for task, data in measured.tasks.items()}
    drawn = measured.drawn[name]
    ends = {
        task: {key: resamples.with_width(resamples.interval(values)) for key, values in each.items()}
        for task, each in drawn.items()
    }
    thirds: dict[str, list[OfLength]] = {}
    for (task, split), (predicted, labels) in own.items():
        # A part of the rows of a query would be another ranking.
        if task not in thirds and (task, split) in measured.lengths and not kinds[task].grouped:
            thirds[task] = by_length(measured.names[task], predicted, labels, measured.lengths[task, split])
    alike = [task for task, kind in kinds.items() if kind.per_token or kind.grade is not None]
    return {
        "near_constant": chance.near_constant(own, without=alike),
        "score_ci95": {task: {key: both for key, both in each.items() if both} for task, each in ends.items()},
        "by_length": thirds,
    }


def _retained(name: str, measured: Measured) -> Retained:
    floor, headline = measured.chance, measured.headline
    ours, theirs = (retained.scores(measured.predictions[each], measured.names) for each in (name, REFERENCE))
    ratio, above = retained.intervals(measured.drawn[name], measured.drawn[REFERENCE], theirs, headline, floor)
    kept = retained.retained(ours, theirs, headline)
    return replace(
        kept,
        ci95=ratio,
        at_least=None if kept.headline is None else _at_least(name, kept.headline, theirs, measured),
        above_chance=retained.above_chance(ours, theirs, floor, headline),
        above_chance_ci95=above,
        development=on_development(name, measured),
        development_above_chance=on_development(name, measured, above=True),
    )


def _at_least(name: str, kept: float, teacher: retained.Scores, measured: Measured) -> float | None:
    """The lower end of the interval of what a variant keeps, `kept` percent: that of a bootstrap, and no higher than
    the rows on which it differs from the teacher can show. None where one of the two is not known."""
    over = retained.with_ratio(teacher, measured.headline)
    end = retained.at_least(measured.drawn[name], measured.drawn[REFERENCE], teacher, measured.headline)
    margins = [_margin(task, name, measured) for task in over]
    known = [margin for margin in margins if margin is not None]
    if end is None or len(known) < len(margins):
        return None
    points = math.hypot(*known) / len(over)
    return min(end, kept - 100 * points / retained.macro_score(teacher, over))


def _margin(task: str, name: str, measured: Measured) -> float | None:
    of = measured.tasks[task].task
    teacher, student = (
        {key: each for key, each in measured.predictions[model].items() if key[0] == task}
        for model in (REFERENCE, name)
    )
    return few_rows.margin_of(of.metrics, of.kind.same, teacher, student, measured.clusters)


def compared(measured: Measured) -> Statistics:
    """Comparisons of the variants with chance and with each other."""
    drawn = measured.drawn
    scored = {v.name: _scored(v, measured) for v in measured.variants if v.name in drawn}
    reference = scored[REFERENCE]
    return Statistics(
        chance=measured.chance,
        guessed=measured.guessed,
        near_chance=chance.near_chance(drawn[REFERENCE], measured.chance),
        tests=significance.every_test([*scored.values()], reference, measured.headline),
        detectable=significance.detectable([*scored.values()], reference),
        drawn_together={" ".join(key): int(parts.max()) + 1 for key, parts in measured.clusters.items()},
        seen=[task for task in measured.tasks if task in {name for _, name in measured.seen}],
    )


def _scored(variant: Variant, measured: Measured) -> significance.Scored:
    own = measured.predictions[variant.name]
    right, rows = dict[str, np.ndarray](), dict[str, np.ndarray]()
    for task, data in measured.tasks.items():
        of_task = {key: each for key, each in own.items() if key[0] == task}
        # McNemar's test is of independent rows.
        if measured.clusters.keys() & of_task.keys():
            continue
        found = significance.correct(data.task.kind.same, of_task)
        if found is not None and few_rows.counts_right_rows(data.task.metrics, next(iter(of_task.values()))[1]):
            rows[task] = found
        if (found := significance.right(data.task.metrics, data.task.kind.same, of_task)) is not None:
            right[task] = found
    return significance.Scored(
        identity(variant),
        variant.role,
        variant.target,
        retained.scores(own, measured.names),
        measured.drawn[variant.name],
        right,
        on_development(variant.name, measured),
        rows,
    )
