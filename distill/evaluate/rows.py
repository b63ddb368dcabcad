"""The rows of results.json: the measurements of each variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distill.data.tasks import TaskData
from distill.evaluate import latency, retained
from distill.evaluate.calibration import expected_calibration_error
from distill.evaluate.cost import gmacs, parameters, size_mib, total
from distill.evaluate.timing import TASK_LENGTHS, Timed, name_of
from distill.evaluate.variants import REFERENCE, Variant, is_reference, same_backend

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
    largest: Sequence[int]
    """The shape at which throughput is reported."""
    cuda: bool
    """Whether torch ran on a GPU."""


def identity(variant: Variant) -> dict[str, Any]:
    """The keys that identify a variant."""
    row: dict[str, Any] = {"name": variant.label, "role": variant.role, "step": variant.step.stage}
    row |= {"target": variant.target or None, "scheme": variant.scheme, "backend": variant.backend}
    return row if variant.member is None else row | {"member": variant.member + 1}


def row(
    variant: Variant,
    measured: Measured,
    sources: Sequence[Path],
    paths: Sequence[Path],
    run: Path,
    one_encoder: bool = False,
) -> dict[str, Any]:
    """One row of `models`.

    Args:
        sources: its float checkpoints.
        paths: the files that are run.
        run: the run folder.
        one_encoder: whether the checkpoints have the same encoder, which then counts once.
    """
    names = {task: data.task.metrics for task, data in measured.tasks.items()}
    own, best = (_predictions(measured, name) for name in (variant.name, REFERENCE))
    scores, times = retained.scores(own, names), measured.timed.times[variant.name]
    inside = paths[0] if len(paths) == 1 and paths[0].is_relative_to(run) else None
    rate = 1000 * measured.largest[0] / float(np.median(times[name_of(measured.largest)]))
    return {
        "path": None if inside is None else str(inside.relative_to(run)),
        "parameters": total(parameters, sources, one_encoder),
        "size_mib": total(size_mib, paths, one_encoder and len(paths) > 1),
        "gmacs": total(gmacs, sources, one_encoder),
        "latency_ms": [_latency(inputs, values) for inputs, values in times.items()],
        "throughput_per_second": rate,
        "requests": latency.percentiles(measured.timed.requests[variant.name]),
        **(measured.served.get(variant.name) or {"cold_start_ms": None, "memory_mib": None}),
        **_energy(variant.name, measured.timed),
        "scores": scores,
        "glue": retained.glue_average(scores) if scores else None,
        "calibration_error": _calibration(measured.outputs[variant.name], measured.tasks),
        **({"recall": recall} if (recall := _recall(own, measured.tasks)) else {}),
        "retained": _retained(own, best, names) if scores and variant.name != REFERENCE else None,
        "speedup": _speedup(variant, measured),
    }


def _energy(name: str, timed: Timed) -> dict[str, Any]:
    return {"energy_j": timed.energy.get(name)} | (
        {} if timed.energy_missing is None else {"energy_missing": timed.energy_missing}
    )


def _latency(inputs: str, values: list[float]) -> dict[str, Any]:
    summary = latency.summary(values)
    if inputs == TASK_LENGTHS:
        return {"batch": None, "length": None, "name": inputs, **summary}
    batch, length = inputs.split("x")
    return {"batch": int(batch), "length": int(length), **summary}


def _predictions(measured: Measured, name: str) -> retained.Predictions:
    """Predictions of the variant of this name."""
    return {
        (task, split): (measured.tasks[task].task.graded(outputs, labels), labels)
        for (task, split), (outputs, labels) in measured.outputs[name].items()
    }


def _recall(own: retained.Predictions, tasks: dict[str, TaskData]) -> dict[str, dict[str, float]]:
    """Task -> label, or type of spans -> percent of its rows that are predicted, on the first reported split."""
    result: dict[str, dict[str, float]] = {}
    for (name, _), (predicted, labels) in own.items():
        if (recalls := (task := tasks[name].task).kind.recalls) is not None and name not in result:
            by_label = recalls(predicted, labels, task.labels)
            result[name] = {label: percent for label, (percent, _) in by_label.items()}
    return result


def _calibration(own: Outputs, tasks: dict[str, TaskData]) -> float | None:
    """Mean over the splits of tasks with classes or labels; None if there is none with predictions."""
    errors = [
        expected_calibration_error(tasks[task].task.kind.rows(outputs), labels.ravel())
        for (task, _), (outputs, labels) in own.items()
        if tasks[task].task.kind.named and not tasks[task].task.kind.per_token
    ]
    return float(np.mean(errors)) if errors else None


def _retained(
    own: retained.Predictions, best: retained.Predictions, names: dict[str, tuple[str, ...]]
) -> dict[str, Any]:
    kept = retained.retained(retained.scores(own, names), retained.scores(best, names))
    interval = retained.bootstrap(own, best, names)
    return kept | {"ci95": None if interval is None else list(interval)}


def _speedup(variant: Variant, measured: Measured) -> dict[str, Any]:
    """Over the form of the teacher (`is_reference`) that is fastest on the same inputs.

    The headline is at the tasks' own lengths: over all backends, and over the forms on the same backend.
    """
    times = measured.timed.times
    teachers = [v for v in measured.variants if is_reference(v, measured.cuda) and times.get(v.name)]
    same = [v for v in teachers if v.backend == same_backend(variant)]  # empty if the teacher does not run on it

    def over(references: Sequence[Variant], inputs: str) -> dict[str, Any] | None:
        if not references:
            return None
        fastest = min(references, key=lambda v: float(np.median(times[v.name][inputs])))
        return latency.speedup(times[fastest.name][inputs], times[variant.name][inputs])

    by_input = {inputs: over(teachers, inputs) for inputs in times[variant.name]}
    headline, on_same = by_input[TASK_LENGTHS], over(same, TASK_LENGTHS)
    assert headline is not None  # the reference is always timed
    return {
        "best_teacher": headline["median"],
        "ci95": headline["ci95"],
        "same_backend": on_same and on_same["median"],
        "by_input": by_input,
    }
