"""Collects `results.json` from the manifests of a run. All numbers were computed by the stages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET
from msgspec.structs import asdict, replace

from distill.compression.pruning.search import Shape
from distill.config import Evaluate, Prune, Target, Train
from distill.config.loads import SINGLE, load_of
from distill.config.plan import Plan, Step, compared
from distill.errors import discreet
from distill.evaluation.results import VERSION, Model, Pruned, Results, Stage, Waterfall
from distill.evaluation.waterfall import waterfall
from distill.inference import latency
from distill.inference.cost import per_million
from distill.inference.timing import OWN, TASK_LENGTHS, TASK_ROWS
from distill.models import families, teacher
from distill.pipeline import artefacts, notes, openings
from distill.pipeline.context import Context
from distill.pipeline.context.folder import Recorded, RunFolder
from distill.pipeline.origin import origin
from distill.pipeline.train_steps.loss_log import losses, thinned
from distill.pipeline.train_steps.tries import tried_in
from distill.report import model_rows


def results(ctx: Context, step: Step | None = None) -> Results | None:
    """Content of results.json, with the scores of an evaluate step, by default the last finished one.

    None if no evaluate step has finished and none is given.
    """
    config, plan, folder, given = ctx.config, ctx.plan, ctx.folder, ctx.given
    evaluated = [other for other in plan.of(Evaluate) if folder.finished(other)]
    if step is None and not evaluated:
        return None
    step = step or evaluated[-1]
    measured = folder.result(step, artefacts.Evaluated)
    models = [_priced(model, config.report.hourly_rate) for model in measured.models]
    reference, least, baseline = step.teacher, config.target.retained, step.source("baseline")
    own = isinstance(baseline, Step) and getattr(baseline.settings, "role", None) == "student"
    assert isinstance(reference, Step)
    began = origin(given, ctx.recipe, measured.command, ctx.embeds)
    every_note = (
        notes.of_budget(folder),
        ctx.notes,
        notes.of_rows(given, ctx.tasks),
        notes.of_baseline(config, plan, folder, ctx.embeds),
        notes.of_pruning(plan),
        notes.of_transfer(plan, folder, ctx.tasks),
        notes.of_teacher(
            given,
            reference.settings,
            {task: ctx.shares(reference, task) for task in ctx.tasks},
            vectors=all(data.task.kind.separate for data in ctx.tasks.values()),
        ),
        notes.of_vocabulary(plan, folder),
        notes.of_quantized(plan, folder),
        notes.of_tries(plan, folder),
    )
    steps = list[Waterfall]()
    for each in compared(step) if models else ():
        student = ctx.checkpoint(each.student, next(iter(ctx.tasks)))
        pruner, target = each.student.pruner, each.target or None
        shape = None if pruner is None else folder.result(pruner, artefacts.Pruned).shape
        changed = _changed(given.teacher, student, shape)
        steps += waterfall(models, changed, target, model_rows.chosen(replace(measured, models=models), target))
    return Results(
        schema=VERSION,
        **asdict(replace(began, version=measured.version)),
        load=measured.load,
        taught_start=plan.taught_start or UNSET,
        own_baseline=own or UNSET,
        heads="shared" if ctx.shared else UNSET,
        least_retained=UNSET if least is None else least,
        environment=measured.environment,
        fingerprints=_fingerprints(plan, folder),
        coverage=measured.coverage,
        openings=openings.recorded(folder.path) or UNSET,
        models=models,
        **asdict(measured.statistics),
        notes=[discreet(note) for of_subject in every_note for note in of_subject],
        pruned=[*_pruned(plan, folder, config.target, models)],
        waterfall=steps,
        stages=[_stage(folder, other) for other in plan.steps if folder.finished(other)],
    )


def tracked(models: Iterable[Model]) -> dict[str, float]:
    """Retained %, speedup, MiB and score of each model, for experiment trackers; without what was not measured."""
    values = {
        f"results/{model.name} {model.backend} {model.scheme}/{key}": value
        for model in models
        for key, value in {
            "retained": model_rows.retained(model),
            "speedup": model_rows.speedup(model),
            "mib": model.size_mib,
            "score": model.macro,
        }.items()
    }
    return {name: float(value) for name, value in values.items() if value is not None and value is not UNSET}


def _priced(model: Model, hourly_rate: float | None) -> Model:
    """A row with the price of a million rows at the tasks' own lengths; None without a rate."""
    if model.failed:
        return model
    times = {row.input: row.median for row in model.latency_ms or ()}
    price = None if hourly_rate is None else per_million(hourly_rate, times[TASK_LENGTHS], TASK_ROWS)
    return replace(model, cost_per_million=price)


def _changed(whole: str, student: Path, shape: Shape | None) -> list[str]:
    """The parts that are smaller in the student than in the teacher, or different: architecture, depth, width,
    vocabulary. `whole`, `student`: folders of their models; `shape`: to which the student was pruned, if it was."""
    before, after = teacher.read_config(whole), teacher.read_config(student)
    full, sizes = _sizes(before), _sizes(after)
    # A checkpoint whose layers differ in their sizes has the teacher's, with zeros.
    sizes = sizes if shape is None else sizes | asdict(shape)
    differs = {
        "architecture": after.model_type != before.model_type,
        "depth": sizes["layers"] != full["layers"],
        "width": (sizes["hidden"], sizes["ffn"]) != (full["hidden"], full["ffn"]),
        "vocabulary": after.vocab_size != before.vocab_size,
    }
    return [name for name, different in differs.items() if different]


def _sizes(config: Any) -> dict[str, int | None]:
    """Layers, hidden channels and FFN channels of a model; None for what its family does not name."""
    names = {"layers": "num_hidden_layers", "hidden": "hidden_size", "ffn": "intermediate_size"}
    settings = families.family_of(config).settings
    return {key: getattr(config, settings.get(name, name), None) for key, name in names.items()}


def _fingerprints(plan: Plan, folder: RunFolder) -> dict[str, str | None]:
    """Fingerprints of the given models and data of the finished steps, and versions of the code that ran them."""
    records = filter(None, map(folder.record, plan.steps))
    return {name: value for record in records for name, value in {**record.key.given, **record.key.versions}.items()}


def _pruned(plan: Plan, folder: RunFolder, target: Target, models: list[Model]) -> Iterator[Pruned]:
    """Shape, predicted speed and measured speed of the pruned model of each target."""
    for step in plan.pruners:
        made = folder.result(step, artefacts.Pruned)
        row = Pruned(step=step.stage, target=step.target or None, **asdict(made.shape))
        if (speed := made.speed) is not None:
            predicted = {"predicted_ms": speed.predicted_ms, "predicted_speedup": speed.predicted_speedup}
            measured = _measured(target, row.target, speed.conditions, models)
            row = replace(row, tried=made.tried, **predicted, **measured)
        yield row


def _measured(wanted: Target, label: str | None, form: dict[str, Any], models: list[Model]) -> dict[str, Any]:
    """The inputs and the form of a search, and what the teacher and the target's student took in them."""
    own, alone = wanted.shape == OWN, load_of(wanted) == SINGLE
    batch, length = (1 if alone else None, None) if own else wanted.shape
    texts = TASK_ROWS if batch is None else 1

    def fastest(role: str, target: str | None, forms: Collection[list[str]]) -> list[float]:
        times = [
            _milliseconds(model, batch, length)
            for model in models
            if (model.role, model.target) == (role, target)
            and [model.backend, model.scheme] in forms
            and not model.failed
        ]
        return min(filter(None, times), key=np.median, default=[])

    one = [form["backend"], form["scheme"]]
    student, whole = fastest("student", label, [one]), fastest("teacher", None, form["over"])
    row: dict[str, Any] = {key: form[key] for key in ("backend", "scheme")} | {"batch": batch, "length": length}
    row["over"] = "same" if form["over"] == [one] else "float32"
    ratio = latency.speedup(whole, student)["median"] if whole and student else None
    return row | {"measured_ms": float(np.median(student)) / texts if student else None, "measured_speedup": ratio}


def _milliseconds(model: Model, batch: int | None, length: int | None) -> list[float]:
    """The times of each round, if there are any; of texts of their own length, one at a time, the median alone."""
    if (batch, length) == (1, None):
        return [model.requests.p50] if model.requests else []
    found = [row for row in model.latency_ms or () if (row.batch, row.length) == (batch, length)]
    return found[0].rounds if found else []


def _stage(folder: RunFolder, step: Step) -> Stage:
    made = folder.result(step, Recorded)
    assert made.record is not None
    row = Stage(
        name=step.stage,
        target=step.target or None,
        kind=step.kind,
        seconds=made.record.cost.seconds,
        tokens_per_second=None,
        peak_memory_mib=made.record.cost.peak_memory_mib,
        skipped=made.skipped or "",
        reused=made.record.reused or UNSET,
    )
    if isinstance(step.settings, Prune):
        return replace(row, seconds=folder.result(step, artefacts.Pruned).seconds)
    if isinstance(step.settings, Train):
        trained = folder.result(step, artefacts.Trained)
        log = thinned(losses(folder.of(step)))
        speed, tried = trained.tokens_per_second, tried_in(folder.of(step))
        return replace(row, seconds=trained.seconds, tokens_per_second=speed, log=log, tried=tried)
    return row
