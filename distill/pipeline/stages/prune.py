"""Prune stage: cuts every task's model to smaller sizes, chosen by losses measured on the task's training rows."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from distill.compression.pruning.goal import Goal
from distill.compression.pruning.ragged import anywhere, zeroed
from distill.compression.pruning.reconstruct import gram_matrices, refitted
from distill.compression.pruning.search import Shape, distance, estimated, evenness, margin_lost
from distill.compression.pruning.select_kept import mean_loss, top
from distill.compression.pruning.sensitivity import Sensitivity, Subject, cut, in_precision, sensitivity, stored
from distill.compression.pruning.target import (
    PARTS,
    SMOKE_PARTS,
    Search,
    candidates,
    config_of,
    requested_shape,
    shape_of,
)
from distill.compression.pruning.times import timer
from distill.compression.pruning.trial_shapes import trial
from distill.config import Prune
from distill.config.plan import Step
from distill.data.task_model import load_for
from distill.data.tasks import TaskData
from distill.deploy.export import untrained
from distill.deploy.export.proof import plain_logits, prove_reload, prove_same
from distill.inference import latency, timing
from distill.inference.runners import Runner
from distill.models import families, teacher
from distill.pipeline.context import Context
from distill.pipeline.context.write import write_model
from distill.pipeline.stages import serving_variant
from distill.runtime import progress
from distill.runtime.storage import run_folder
from distill.runtime.versions import processor

CHOICE = "choice.json"
"""File of the shape that movement gates are trained for."""

TRIALS = "trials.json"
"""File of the losses of trials, by task and shape."""

PROOF_ROWS = 4
"""Number of a task's rows that verify a saved model."""


def run(ctx: Context, step: Step) -> dict[str, Any]:
    """Cut every task's model for one target, save the models and verify them. Returns the manifest."""
    settings: Prune = step.settings
    with _timed(ctx, step):
        shapes, choice = _shapes(ctx, step, settings)
        shape, longest = Shape(**choice["shape"]), ctx.config.tasks.max_length
        with run_folder.writing(ctx.folder.of(step)) as temporary:
            parts = {
                task: _cut(ctx, step, settings, data, shapes, shape, temporary) for task, data in ctx.tasks.items()
            }
            rows = {task: texts_of(data) for task, data in ctx.tasks.items()}
            expected = {
                temporary / task: (texts, plain_logits(temporary / task, texts, longest))
                for task, texts in rows.items()
            }
            ctx.machine.log(f"{step.folder}: {len(expected)} models are verified in a fresh process")
            with progress.waiting("verifying"):
                differences = prove_reload(expected, longest)
            proofs = {"largest_difference": {folder.name: value for folder, value in differences.items()}}
            manifest = choice | {"tasks": parts} | proofs
            run_folder.write_json(temporary / run_folder.MANIFEST, manifest)
    return manifest | {"seconds": run_folder.read_json(_seconds(ctx, step))}


def _shapes(ctx: Context, step: Step, settings: Prune) -> tuple[Sequence[Shape], dict[str, Any]]:
    """The candidate shapes of a step and, for its manifest, the choice. A baseline has the shape of its student."""
    pruner, first, task = step.pruner, step.first_pruner, next(iter(ctx.tasks))
    assert pruner is not None
    assert first is not None
    if pruner is not step:
        chosen = ctx.folder.manifest(pruner)["shape"]
        return [Shape(**chosen)], {"shape": chosen}
    whole, config = (teacher.read_config(ctx.checkpoint(source, task)) for source in (first.start, step.start))
    search = search_of(ctx, step, whole, config)
    return search.shapes, _choice(ctx, step, settings, search)


def search_of(ctx: Context, step: Step, whole: Any, start: Any = None) -> Search:
    """The search for the shape of a step.

    Args:
        whole: config of the unpruned models.
        start: config of the models that the step prunes, where these were pruned before; `whole` when None.
    """
    settings: Prune = step.settings
    parts = SMOKE_PARTS if ctx.config.limit.smoke else PARTS
    searches, config = ctx.plan.has_target, start or whole
    if searches:  # of the sizes that the unpruned models may be cut to, so that they are timed once for all targets
        shapes = [shape for shape in candidates(whole, settings.dimensions, parts) if shape.within(shape_of(config))]
    else:
        shapes = [requested_shape(config, ctx.config.student)]
    limit, machine, form = ctx.config.limit, ctx.machine, serving_variant.form_of(ctx)

    def log(text: str) -> None:
        machine.log(f"{step.stage}: {text}, {form.backend} {form.scheme}")

    def build(name: str, shape: Shape) -> Runner:
        return serving_variant.runner(ctx, name, form, config_of(config, shape))

    def references() -> list[Runner]:
        of_teacher = teacher.read_config(ctx.given.teacher)
        whole = config_of(of_teacher, shape_of(of_teacher))
        forms = untrained.references(form)
        return [serving_variant.runner(ctx, f"{each.backend} {each.scheme}", each, whole) for each in forms]

    inputs, own = serving_variant.batches(ctx) if searches else [], ctx.config.target.shape == timing.OWN
    sizes = [batch["attention_mask"].sum(1).tolist() for batch in inputs]
    return Search(
        config,
        shapes,
        build,
        references,
        timer(
            inputs,
            timing.TASK_ROWS if own else 1,
            repeats=min(untrained.REPEATS, limit.repeats or untrained.REPEATS),
            least_ms=latency.SMOKE_MS if limit.smoke else latency.LEAST_MS,
            log=lambda text: machine.log(f"{step.stage}: {text}"),
        ),
        {"device": machine.device.type, "threads": machine.threads, **asdict(form), "inputs": sizes}
        | {"processor": processor(machine)},
        ctx.folder.times(step),
        checked=not limit.smoke,
        log=log,
    )


def check_reach(ctx: Context, step: Step, config: Any) -> None:
    """Raise ConfigError for a target that no model pruned from one of this config can meet on this machine."""
    if ctx.config.limit.smoke or not ctx.plan.has_target or _shape_file(ctx, step).is_file():
        return
    with _timed(ctx, step):
        # Sizes cannot be checked before a vocabulary stage has run, which reduces them.
        search_of(ctx, step, config).check(step.goal, sized=not isinstance(step.tokenizer, Step))


def _seconds(ctx: Context, step: Step) -> Path:
    return ctx.folder.measured(step) / f"seconds{step.target}.json"


def goal_of_gates(ctx: Context, step: Step) -> Goal:
    """The goal to which a train step trains its gates: the target, or the sizes, of the prune step that prunes by them.

    Movement gates need a shape before they are trained: the shape that meets the target by the most even scaling of the
    model. It is stored, so that a stopped run resumes.
    """
    pruner = next(other for other in ctx.plan.of(Prune) if other.gated is step)
    search = search_of(ctx, pruner, teacher.read_config(ctx.checkpoint(step.start, next(iter(ctx.tasks)))))
    if not ctx.plan.has_target:
        return Goal(search.shapes)
    file = ctx.folder.of(step) / CHOICE
    # The other processes read what the main process measured and chose.
    with ctx.machine.main_first(), _timed(ctx, pruner) if ctx.machine.main else nullcontext():
        if step.settings.gates.kind == "l0":
            return search.goal(step.goal)
        if not file.is_file():
            run_folder.write_json(file, search.choice(step.goal, evenness(search.full)))
    choice = run_folder.read_json(file)
    return Goal([Shape(**choice["shape"])], choice=choice)


def _shape_file(ctx: Context, step: Step) -> Path:
    return ctx.folder.measured(step) / f"shape{step.target}.json"


@contextmanager
def _timed(ctx: Context, step: Step) -> Iterator[None]:
    """Add the seconds of the block to the stored seconds of the step, which include stopped runs."""
    file, began = _seconds(ctx, step), time.monotonic()
    before = run_folder.read_json(file) if file.is_file() else 0.0
    try:
        yield
    finally:
        run_folder.write_json(file, before + time.monotonic() - began)


def _choice(ctx: Context, step: Step, settings: Prune, search: Search) -> dict[str, Any]:
    """The shape for the step's target and its predicted speed. It is stored, so that a stopped run resumes."""
    file = _shape_file(ctx, step)
    if not ctx.plan.has_target:
        return {"shape": asdict(search.shapes[0])}
    if not file.is_file():
        most = settings.finalists
        tried = functools.partial(_tried, ctx, step, settings, search) if most > 1 else None
        if step.gated is None:
            # All tasks are measured, because their models get the same shape.
            measured = [_sensitivity(ctx, step, settings, data, search.shapes) for data in ctx.tasks.values()]
            losses = [part.losses for part in measured if part.losses is not None]
            found = search.choice(step.goal, estimated(losses), most, tried, margin_lost(losses))
        else:
            gates = ctx.folder.manifest(step.gated)
            nearest = distance(gates["expected"].values())
            found = gates["choice"] or search.choice(step.goal, nearest, most, tried)
        run_folder.write_json(file, found)
    choice: dict[str, Any] = run_folder.read_json(file)
    if choice["conditions"] != search.conditions:
        # Chosen on another machine or with other threads: the shape stays, its speed is predicted anew.
        choice |= search.expected(Shape(**choice["shape"]))
        run_folder.write_json(file, choice)
    return choice


def _subject(ctx: Context, step: Step, data: TaskData) -> Subject:
    """A task's model on the device, with the data to measure it."""
    tokenizer, folder = ctx.tokenizer(step.start), ctx.checkpoint(step.start, data.task.name)
    model = load_for(data.task, folder, pad_id=tokenizer.pad_token_id)
    name, longest = f"{step.stage}/{data.task.name}", ctx.config.tasks.max_length
    return Subject(name, model.to(ctx.machine.device), tokenizer, data, folder, longest, ctx.config.seed)


def _sensitivity(ctx: Context, step: Step, settings: Prune, data: TaskData, shapes: Sequence[Shape]) -> Sensitivity:
    """The measurements of a task's model, loaded if an earlier run stored them."""
    steps = min(settings.retrain_steps, ctx.config.limit.steps or settings.retrain_steps)

    def measure() -> Sensitivity:
        return sensitivity(
            _subject(ctx, step, data),
            settings,
            shapes,
            in_precision(ctx.machine.precision, data.task.kind),
            layers=ctx.config.student.layers,
            search=ctx.plan.has_target and step.pruner is step and step.gated is None,
            retrain_steps=steps,
            log=ctx.machine.log,
        )

    return stored(ctx.folder.measured(step) / data.task.name, measure)


def _tried(ctx: Context, step: Step, settings: Prune, search: Search, shapes: Sequence[Shape]) -> dict[Shape, float]:
    """Shape -> loss of a model of this shape in a trial: the mean over tasks of the log loss. The losses are stored."""
    file = ctx.folder.measured(step) / TRIALS
    steps = min(settings.trial_steps, ctx.config.limit.steps or settings.trial_steps)
    known: dict[str, dict[str, float]] = run_folder.read_json(file) if file.is_file() else {}
    names = {f"{shape.layers} x {shape.hidden} x {shape.ffn}": shape for shape in shapes}
    # Task by task, so that one unpruned model is in memory at a time.
    for task, data in ctx.tasks.items():
        of_task = known.setdefault(task, {})
        if not (new := [name for name in names if name not in of_task]):
            continue
        measured = _sensitivity(ctx, step, settings, data, search.shapes)
        with progress.counted(f"{step.stage}/{task}: trials of shapes", len(new)) as done:
            of_trial = trial(_subject(ctx, step, data), measured, settings.examples, steps, ctx.machine.precision)
            for name in new:
                of_task[name] = of_trial.loss(names[name])
                done(1)
        run_folder.write_json(file, known)
    lost = {shape: fmean(of_task[name] for of_task in known.values()) for name, shape in names.items()}
    found = ", ".join(f"{name}: {math.exp(lost[shape]):.3f}" for name, shape in names.items())
    ctx.machine.log(f"{step.stage}: loss after brief distillation: {found}")
    return lost


def _cut(
    ctx: Context, step: Step, settings: Prune, data: TaskData, shapes: Sequence[Shape], shape: Shape, out: Path
) -> dict[str, Any]:
    """Write a task's model of this shape to `out`. Returns its manifest: kept layers, and losses before and after."""
    measured, subject = _sensitivity(ctx, step, settings, data, shapes), _subject(ctx, step, data)
    model, parts, loss = (
        subject.model,
        subject.sample(settings.examples),
        in_precision(ctx.machine.precision, data.task.kind),
    )
    layers = measured.layers[shape.layers]
    scores = replace(measured.scores, grams=gram_matrices(model, parts) if measured.refit else None)
    small = _small(ctx, settings, model, layers, scores, shape)
    losses = {"before": mean_loss(model, parts, loss), "after": mean_loss(small, parts, loss)}
    ctx.machine.log(
        f"{step.folder}/{data.task.name}: {shape.layers} layers {layers}, {shape.hidden} wide, FFN {shape.ffn}; "
        f"loss {losses['before']:.3f} -> {losses['after']:.3f}"
    )
    channels = top(measured.scores.hidden, shape.hidden).tolist()
    manifest = {"layers": list(layers), "hidden": channels, "loss": losses}
    with write_model(out / data.task.name, small, subject.tokenizer, manifest) as temporary:
        prove_same(small, temporary, texts_of(data), ctx.config.tasks.max_length)
    return manifest


def _small(ctx: Context, settings: Prune, model: Any, layers: Sequence[int], scores: Any, shape: Shape) -> Any:
    """The model cut to a shape, or with `uniform: false`, with zeros for the least important heads and channels."""
    if settings.uniform:
        return cut(model, layers, scores, shape.hidden, shape.ffn)
    heads = ctx.config.student.num_attention_heads or families.heads(model)
    kept = anywhere(model, layers, scores, heads, shape.ffn)
    return zeroed(model if scores.grams is None else refitted(model, kept, scores.grams), kept)


def texts_of(data: TaskData) -> list[list[str]]:
    """The texts of the first training rows of the task, which verify a saved model."""
    return data.inputs(data.train.select(range(min(PROOF_ROWS, len(data.train)))))
