"""The training losses of a finished step."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from distill.pipeline import artefacts
from distill.runtime.storage import run_folder, structs
from distill.training import Row


def losses(folder: Path) -> list[tuple[float, float]]:
    """[step, training loss] of what was trained in a folder; the loss is the weighted sum of the terms.

    Models of several tasks or members were trained one after the other: their steps are counted on.
    """
    return _read(folder)[1]


def _read(folder: Path) -> tuple[int, list[tuple[float, float]]]:
    """The number of steps, and `losses`."""
    made = structs.read(folder / run_folder.MANIFEST, artefacts.Trained)
    if made.log:
        return made.steps, _points(made.log)
    models = [_read(folder / part) for part in made.members]
    for part in made.tasks:
        model = structs.read(folder / part / run_folder.MANIFEST, artefacts.TaskModel)
        models.append((model.steps, _points(model.log)))
    before = [sum(steps for steps, _ in models[:number]) for number in range(len(models))]
    joined = [(start + at, loss) for start, (_, log) in zip(before, models, strict=True) for at, loss in log]
    return made.steps, joined


def _points(log: Iterable[Row]) -> list[tuple[float, float]]:
    return [(row.step, row.loss) for row in log]


def thinned(log: list[tuple[float, float]], most: int = 50) -> list[tuple[float, float]]:
    """At most `most` rows at about equal distances, the first and the last among them."""
    if len(log) <= most:
        return log
    return [log[round(i * (len(log) - 1) / (most - 1))] for i in range(most)]
