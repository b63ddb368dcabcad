"""Prune stage: cuts every task's model to smaller sizes, chosen by losses measured on the task's training rows."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from distill.compression.pruning.ragged import zeroed_to
from distill.compression.pruning.search import Choice, Shape, distance, estimated, margin_lost
from distill.compression.pruning.select_kept import mean_loss, top
from distill.compression.pruning.sensitivity import Sensitivity, Subject, cut_to, in_precision, sensitivity, stored
from distill.compression.pruning.target import Search
from distill.compression.pruning.trial_shapes import trial
from distill.config import Prune
from distill.config.plan import Step
from distill.data.task_model import load_for
from distill.data.tasks import TaskData
from distill.deploy.export.proof import plain_logits, prove_reload, prove_same
from distill.models import teacher
from distill.models.write import write_model
from distill.pipeline.artefacts import Cut, Pruned, Trained
from distill.pipeline.context import Context
from distill.pipeline.stages.shape_search import search_of, seconds_file, shape_file, timed
from distill.runtime import progress
from distill.runtime.storage import run_folder, structs

TRIALS = "trials.json"
"""File of the losses of trials, by task and shape."""

PROOF_ROWS = 4
"""Number of a task's rows that verify a saved model."""


def run(ctx: Context, step: Step) -> Pruned:
    """Cut every task's model for one target, save the models and verify them."""
    with timed(ctx, step):
        longest = ctx.config.tasks.max_length
        shapes, shape, choice = _shapes(ctx, step)
        with run_folder.writing(ctx.folder.of(step)) as temporary:
            parts = {task: _cut(ctx, step, data, shapes, shape, temporary) for task, data in ctx.tasks.items()}
            rows = {task: texts_of(data) for task, data in ctx.tasks.items()}
            expected = {
                temporary / task: (texts, plain_logits(temporary / task, texts, longest))
                for task, texts in rows.items()
            }
            ctx.machine.log(f"{step.folder}: {len(expected)} models are verified in a fresh process")
            with progress.waiting("verifying"):
                differences = prove_reload(expected, longest)
    return Pruned(
        shape=shape,
        seconds=run_folder.read_json(seconds_file(ctx, step)),
        tasks=parts,
        largest_difference={folder.name: value for folder, value in differences.items()},
        tried=None if choice is None else choice.tried,
        speed=None if choice is None else choice.speed,
    )


def _shapes(ctx: Context, step: Step) -> tuple[Sequence[Shape], Shape, Choice | None]:
    """The candidate shapes of a step, its shape and, with a target, the choice of it. A baseline has its student's."""
    pruner, first, task = step.pruner, step.first_pruner, next(iter(ctx.tasks))
    assert pruner is not None
    assert first is not None
    if pruner is not step:
        chosen = ctx.folder.result(pruner, Pruned).shape
        return [chosen], chosen, None
    whole, config = (teacher.read_config(ctx.checkpoint(source, task)) for source in (first.start, step.start))
    search = search_of(ctx, step, whole, config)
    if not ctx.plan.has_target:
        return search.shapes, search.shapes[0], None
    choice = _choice(ctx, step, search)
    return search.shapes, choice.shape, choice


def _choice(ctx: Context, step: Step, search: Search) -> Choice:
    """The shape for the step's target and its predicted speed. It is stored, so that a stopped run resumes."""
    file = shape_file(ctx, step)
    if not file.is_file():
        most = step.settings.finalists
        tried = functools.partial(_tried, ctx, step, search) if most > 1 else None
        if step.gated is None:
            # All tasks are measured, because their models get the same shape.
            measured = [_sensitivity(ctx, step, data, search.shapes) for data in ctx.tasks.values()]
            losses = [part.losses for part in measured if part.losses is not None]
            found = search.choice(step.goal, estimated(losses), most, tried, margin_lost(losses))
        else:
            gates = ctx.folder.result(step.gated, Trained)
            nearest = distance(gates.expected.values())
            found = gates.choice or search.choice(step.goal, nearest, most, tried)
        structs.write(file, found)
    choice = structs.read(file, Choice)
    if choice.speed.conditions != search.conditions:
        # Chosen on another machine or with other threads: the shape stays, its speed is predicted anew.
        choice = Choice(shape=choice.shape, tried=choice.tried, speed=search.expected(choice.shape))
        structs.write(file, choice)
    return choice


def _subject(ctx: Context, step: Step, data: TaskData) -> Subject:
    """A task's model on the device, with the data to measure it."""
    tokenizer, folder = ctx.tokenizer(step.start), ctx.checkpoint(step.start, data.task.name)
    model = load_for(data.task, folder, pad_id=tokenizer.pad_token_id)
    name, longest = f"{step.stage}/{data.task.name}", ctx.config.tasks.max_length
    return Subject(name, model.to(ctx.machine.device), tokenizer, data, folder, longest, ctx.config.seed)


def _sensitivity(ctx: Context, step: Step, data: TaskData, shapes: Sequence[Shape]) -> Sensitivity:
    """The measurements of a task's model, loaded if an earlier run stored them."""
    settings: Prune = step.settings

    def measure() -> Sensitivity:
        return sensitivity(
            _subject(ctx, step, data),
            settings,
            shapes,
            in_precision(ctx.machine.precision, data.task.kind),
            layers=ctx.config.student.layers,
            search=ctx.plan.has_target and step.pruner is step and step.gated is None,
            retrain_steps=_limited(ctx, settings.retrain_steps),
            log=ctx.machine.log,
        )

    return stored(ctx.folder.measured(step) / data.task.name, measure)


def _limited(ctx: Context, steps: int) -> int:
    """The number of steps, or `limit.steps` if it is less."""
    return min(steps, ctx.config.limit.steps or steps)


def _tried(ctx: Context, step: Step, search: Search, shapes: Sequence[Shape]) -> dict[Shape, float]:
    """Shape -> loss of a model of this shape in a trial: the mean over tasks of the log loss. The losses are stored."""
    settings, file = step.settings, ctx.folder.measured(step) / TRIALS
    known: dict[str, dict[str, float]] = run_folder.read_json(file) if file.is_file() else {}
    names = {f"{shape.layers} x {shape.hidden} x {shape.ffn}": shape for shape in shapes}
    # Task by task, so that one unpruned model is in memory at a time.
    for task, data in ctx.tasks.items():
        of_task = known.setdefault(task, {})
        if not (new := [name for name in names if name not in of_task]):
            continue
        measured = _sensitivity(ctx, step, data, search.shapes)
        with progress.counted(f"{step.stage}/{task}: trials of shapes", len(new)) as done:
            subject, steps = _subject(ctx, step, data), _limited(ctx, settings.trial_steps)
            of_trial = trial(subject, measured, settings.examples, steps, ctx.machine.precision)
            for name in new:
                of_task[name] = of_trial.loss(names[name])
                done(1)
        run_folder.write_json(file, known)
    lost = {shape: fmean(of_task[name] for of_task in known.values()) for name, shape in names.items()}
    found = ", ".join(f"{name}: {math.exp(lost[shape]):.3f}" for name, shape in names.items())
    ctx.machine.log(f"{step.stage}: loss after brief distillation: {found}")
    return lost


def _cut(ctx: Context, step: Step, data: TaskData, shapes: Sequence[Shape], shape: Shape, out: Path) -> Cut:
    """Write a task's model of this shape to `out`. Returns what it kept.

    With `uniform: false`, the model has zeros as the least important heads and channels.
    """
    settings: Prune = step.settings
    measured, subject = _sensitivity(ctx, step, data, shapes), _subject(ctx, step, data)
    model, rows, loss = (
        subject.model,
        subject.sample(settings.examples),
        in_precision(ctx.machine.precision, data.task.kind),
    )
    if settings.uniform:
        small = cut_to(model, measured, shape, rows)
    else:
        small = zeroed_to(model, measured, shape, rows, ctx.config.student.num_attention_heads)
    layers, losses = measured.layers[shape.layers], [mean_loss(each, rows, loss) for each in (model, small)]
    ctx.machine.log(
        f"{step.folder}/{data.task.name}: {shape.layers} layers {layers}, {shape.hidden} wide, FFN {shape.ffn}; "
        f"loss {losses[0]:.3f} -> {losses[1]:.3f}"
    )
    with write_model(out / data.task.name, small, subject.tokenizer) as temporary:
        prove_same(small, temporary, texts_of(data), ctx.config.tasks.max_length)
    return Cut(layers=layers, hidden=top(measured.scores.hidden, shape.hidden).tolist())


def texts_of(data: TaskData) -> list[list[str]]:
    """The texts of the first training rows of the task, which verify a saved model."""
    return data.inputs(data.train.select(range(min(PROOF_ROWS, len(data.train)))))
