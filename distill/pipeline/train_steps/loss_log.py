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
    made = structs.read(folder / run_folder.MANIFEST, artefacts.Trained)
    models = [(made.steps, _points(made.log))] if made.log else []
    for part in made.members:
        member = structs.read(folder / part / run_folder.MANIFEST, artefacts.Trained)
        models.append((member.steps, losses(folder / part)))
    for part in () if made.log else made.tasks:
        model = structs.read(folder / part / run_folder.MANIFEST, artefacts.TaskModel)
        models.append((model.steps, _points(model.log)))
    joined, before = [], 0
    for steps, log in models:
        joined += [(before + at, loss) for at, loss in log]
        before += steps
    return joined


def _points(log: Iterable[Row]) -> list[tuple[float, float]]:
    return [(row.step, row.loss) for row in log]


def thinned(log: list[tuple[float, float]], most: int = 50) -> list[tuple[float, float]]:
    """At most `most` rows at about equal distances, the first and the last among them."""
    if len(log) <= most:
        return log
    return [log[round(i * (len(log) - 1) / (most - 1))] for i in range(most)]
