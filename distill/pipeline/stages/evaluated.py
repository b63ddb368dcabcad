"""What an evaluation measured of the artifacts that are exported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from distill.config.loads import BATCH, SINGLE_TEXTS
from distill.config.schemes import file_of
from distill.deploy.export.artifacts import Exported, Proof
from distill.deploy.export.record import Entry
from distill.evaluation.results import Model, Results
from distill.report import decision, timed
from distill.report.variants import Run

Forms = dict[tuple[str, str], Model]
"""(backend, scheme) -> row of results.json."""


def forms(measured: Results | None, role: str, target: str) -> Forms:
    """The rows of the variants of an exported model: of the teacher, or of the student of a target."""
    return {
        (model.backend, model.scheme): model
        for model in (measured.models if measured else ())
        if (model.role, model.target) == (role, target or None)
    }


def advised(measured: Results, folder: str) -> Forms:
    """The rows of the teacher's forms that are exported: the one that the report advises, and those in float32.

    The others have no limit on what they lose, and the fastest form of an exported folder answers.
    """
    chosen = decision.decided(Run(folder, measured)).chosen
    every = forms(measured, "teacher", "")
    best = None if chosen is None or chosen.role != "teacher" else (chosen.backend, chosen.scheme)
    return {name: model for name, model in every.items() if name == best or name[1] == "fp32"}


def load(measured: Results | None) -> str:
    """The load that the results are about."""
    return BATCH if measured is None else measured.load


def entries(
    measured: Results | None, every: Forms, exported: Sequence[Exported], proofs: Mapping[str, Proof]
) -> Iterator[Entry]:
    """The artifacts of a task with their times, from token ids, in batches and of single texts. `every`: the rows of
    the exported model, as from `forms`; `proofs`: by the names of artifacts."""
    shape = None if measured is None else timed.batches(measured)
    models = {name: model for name, model in every.items() if not model.failed}
    task = exported[0].task

    def entry(backend: str, scheme: str, path: str, agreement: float | None) -> Entry:
        model, own = models.get((backend, scheme)), chosen(models, task, backend, scheme)
        row = None if model is None else timed.latency(model, shape)
        if model is None or row is None:
            return Entry(backend, scheme, path, agreement=agreement, **own)
        single = timed.median(model, SINGLE_TEXTS)
        return Entry(backend, scheme, path, row.median, row.batch, row.length, agreement, single_ms=single, **own)

    for artifact in exported:
        yield entry(artifact.backend, artifact.scheme, artifact.path, proofs[artifact.name].agreement)
    places = {(artifact.backend, artifact.scheme): artifact.path for artifact in exported}
    for (backend, scheme), model in models.items():
        file = file_of(backend, scheme)
        if file in places and (backend, scheme) not in places and model.scores:
            yield entry(backend, scheme, places[file], None)


def chosen(models: Forms, task: str, backend: str, scheme: str) -> dict[str, Any]:
    """The `temperature` and the `thresholds` of a variant, as fields of `Entry`. A float32 variant that was
    only timed has those of another float32 variant."""
    same = [(backend, scheme), *(name for name in models if scheme == name[1] == "fp32")]
    found = [models[name] for name in same if name in models]
    scaled = (model.calibration[task].temperature for model in found if task in model.calibration)
    return {
        "temperature": next((each for each in scaled if each is not None), None),
        "thresholds": next(filter(None, (_thresholds(model, task) for model in found)), None),
    }


def of_heads(entry: Entry, models: Forms, tasks: Sequence[str]) -> Entry:
    """The artifact of all heads with the temperature of each of them."""
    found = {task: chosen(models, task, entry.backend, entry.scheme)["temperature"] for task in tasks}
    known = {task: temperature for task, temperature in found.items() if temperature is not None}
    return replace(entry, temperatures=known or None)


def _thresholds(model: Model, task: str) -> dict[str, float]:
    labels = model.detection.get(task, {})
    return {label: each.threshold for label, each in labels.items() if each.threshold is not None}
