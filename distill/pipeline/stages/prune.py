"""Prune stage: cuts every task's model to smaller sizes, chosen by losses measured on the task's training rows."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from msgspec.structs import replace

from distill.compression.pruning.ragged import zeroed_to
from distill.compression.pruning.search import Choice, Shape, distance, estimated, margin_lost
from distill.compression.pruning.select_kept import mean_loss, top
from distill.compression.pruning.sensitivity import Sensitivity, Subject, cut_to, in_precision, sensitivity, stored
from distill.compression.pruning.target import Search, shape_of
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
from distill.pipeline.context.checkpoints import Checkpoints
from distill.pipeline.runtime import Runtime
from distill.pipeline.stages.shape_search import SearchInputs, search_inputs, search_of, timed
from distill.runtime import progress
from distill.runtime.storage import atomic, structs

TRIALS = "trials.json"
"""File of the losses of trials, by task and shape."""

PROOF_ROWS = 4
"""Number of a task's rows that verify a saved model."""


@dataclass(frozen=True)
class PruneInputs:
    """What a prune step reads."""

    name: str
    """Folder of the step, relative to the run folder."""
    models: Checkpoints
    tasks: dict[str, TaskData]
    search: SearchInputs
    unpruned: Path
    """Folder of a model that no prune step has cut."""
    shape: Shape | None
    """The shape of its student for the models of a baseline; None for a step that chooses its shape."""
    gates: Trained | None
    """The training of the gates by which it prunes; None if it prunes by no gates."""


def inputs(ctx: Context, step: Step) -> PruneInputs:
    pruner, first = step.pruner, step.first_pruner
    assert pruner is not None
    assert first is not None
    return PruneInputs(
        name=step.folder,
        models=ctx.models(step.start),
        tasks=ctx.tasks,
        search=search_inputs(ctx, step),
        unpruned=ctx.checkpoint(first.start, next(iter(ctx.tasks))),
        shape=None if pruner is step else ctx.folder.result(pruner, Pruned).shape,
        gates=None if step.gated is None else ctx.folder.result(step.gated, Trained),
    )


def run(inputs: PruneInputs, settings: Prune, runtime: Runtime) -> Pruned:
    """Cut every task's model for one target, save the models and verify them."""
    longest, log = runtime.longest, runtime.machine.log
    with timed(inputs.search.seconds_file):
        shapes, shape, choice = _shapes(inputs, settings, runtime)
        with atomic.writing(runtime.folder / inputs.name) as temporary:
            tasks = inputs.tasks.items()
            parts = {task: _cut(inputs, settings, runtime, data, shapes, shape, temporary) for task, data in tasks}
            rows = {task: texts_of(data) for task, data in tasks}
            expected = {
                temporary / task: (texts, plain_logits(temporary / task, texts, longest))
                for task, texts in rows.items()
            }
            log(f"{inputs.name}: what was written is verified in a fresh process")
            with progress.waiting("verifying"):
                differences = prove_reload(expected, longest)
    return Pruned(
        shape=shape,
        seconds=atomic.read_json(inputs.search.seconds_file),
        tasks=parts,
        largest_difference={folder.name: value for folder, value in differences.items()},
        tried=None if choice is None else choice.tried,
        speed=None if choice is None else choice.speed,
    )


def _shapes(inputs: PruneInputs, settings: Prune, runtime: Runtime) -> tuple[Sequence[Shape], Shape, Choice | None]:
    """The candidate shapes of a step, its shape and, with a target, the choice of it. A baseline has its student's."""
    if inputs.shape is not None:
        return [inputs.shape], inputs.shape, None
    folders = (inputs.unpruned, inputs.models.folder(next(iter(inputs.tasks))))
    search = search_of(inputs.search, runtime, *map(teacher.read_config, folders))
    if not inputs.search.searched:
        return search.shapes, search.shapes[0], None
    choice = _choice(inputs, settings, runtime, search)
    return search.shapes, choice.shape, choice


def _choice(inputs: PruneInputs, settings: Prune, runtime: Runtime, search: Search) -> Choice:
    """The shape for the step's target and its predicted speed. It is stored, so that a stopped run resumes."""
    file, most, gates = inputs.search.shape_file, settings.finalists, inputs.gates
    if not file.is_file():
        tried = functools.partial(_tried, inputs, settings, runtime, search) if most > 1 else None
        if gates is None:
            # All tasks are measured, because their models get the same shape.
            every = inputs.tasks.values()
            measured = [_sensitivity(inputs, settings, runtime, data, search.shapes) for data in every]
            losses = [part.losses for part in measured if part.losses is not None]
            found = search.choice(estimated(losses), most, tried, margin_lost(losses))
        else:
            found = gates.choice or search.choice(distance(gates.expected.values()), most, tried)
        structs.write(file, found)
    choice = structs.read(file, Choice)
    if not search.conditions.items() <= choice.speed.conditions.items():
        # Chosen on another machine or with other threads: the shape stays, its speed is predicted anew.
        choice = replace(choice, speed=search.expected(choice.shape))
        structs.write(file, choice)
    return choice


def _subject(inputs: PruneInputs, runtime: Runtime, data: TaskData) -> Subject:
    """A task's model on the device, with the data to measure it."""
    folder, tokenizer = inputs.models.folder(data.task.name), inputs.models.tokenizer
    model = load_for(data.task, folder, pad_id=tokenizer.pad_token_id).to(runtime.machine.device)
    name = f"{inputs.search.stage}/{data.task.name}"
    return Subject(name, model, tokenizer, data, folder, runtime.longest, runtime.seed)


def _sensitivity(
    inputs: PruneInputs, settings: Prune, runtime: Runtime, data: TaskData, shapes: Sequence[Shape]
) -> Sensitivity:
    """The measurements of a task's model, loaded if an earlier run stored them."""

    def measure() -> Sensitivity:
        return sensitivity(
            _subject(inputs, runtime, data),
            settings,
            shapes,
            in_precision(runtime.machine.precision, data.task.kind),
            layers=inputs.search.student.layers,
            search=inputs.search.searched and inputs.shape is None and inputs.gates is None,
            retrain_steps=min(settings.retrain_steps, runtime.limit.steps or settings.retrain_steps),
            log=runtime.machine.log,
        )

    return stored(inputs.search.measured / data.task.name, measure)


def _tried(
    inputs: PruneInputs, settings: Prune, runtime: Runtime, search: Search, shapes: Sequence[Shape]
) -> dict[Shape, float]:
    """Shape -> loss of a model of this shape in a trial: the mean over tasks of the log loss. The losses are stored."""
    stage, file, machine = inputs.search.stage, inputs.search.measured / TRIALS, runtime.machine
    known: dict[str, dict[str, float]] = atomic.read_json(file) if file.is_file() else {}
    names = {f"{shape.layers} x {shape.hidden} x {shape.ffn}": shape for shape in shapes}
    # Task by task, so that one unpruned model is in memory at a time.
    for task, data in inputs.tasks.items():
        of_task = known.setdefault(task, {})
        if not (new := [name for name in names if name not in of_task]):
            continue
        measured = _sensitivity(inputs, settings, runtime, data, search.shapes)
        with progress.counted(f"{stage}/{task}: trials of shapes", len(new)) as done:
            steps = min(settings.trial_steps, runtime.limit.steps or settings.trial_steps)
            subject = _subject(inputs, runtime, data)
            of_trial = trial(subject, measured, settings.examples, steps, machine.precision)
            for name in new:
                of_task[name] = of_trial.loss(names[name])
                done(1)
        atomic.write_json(file, known)
    lost = {shape: fmean(of_task[name] for of_task in known.values()) for name, shape in names.items()}
    found = ", ".join(f"{name}: {math.exp(lost[shape]):.3f}" for name, shape in names.items())
    machine.log(f"{stage}: loss after brief distillation: {found}")
    return lost


def _cut(
    inputs: PruneInputs,
    settings: Prune,
    runtime: Runtime,
    data: TaskData,
    shapes: Sequence[Shape],
    shape: Shape,
    out: Path,
) -> Cut:
    """Write a task's model of this shape to `out`. Returns what it kept.

    With `uniform: false`, the model has zeros as the least important heads and channels.
    """
    measured, subject = _sensitivity(inputs, settings, runtime, data, shapes), _subject(inputs, runtime, data)
    model, rows = subject.model, subject.sample(settings.examples)
    loss = in_precision(runtime.machine.precision, data.task.kind)
    if settings.uniform:
        small = cut_to(model, measured, shape, rows)
    else:
        small = zeroed_to(model, measured, shape, rows, inputs.search.student.num_attention_heads)
    layers, losses = measured.layers[shape.layers], [mean_loss(each, rows, loss) for each in (model, small)]
    runtime.machine.log(
        f"{inputs.name}/{data.task.name}: {shape.layers} layers {layers}, {shape.hidden} wide, FFN {shape.ffn}; "
        f"loss {losses[0]:.3f} -> {losses[1]:.3f} before it is trained again"
    )
    if shape == shape_of(model.config) and inputs.search.searched and inputs.shape is None:
        runtime.machine.log(
            f"{inputs.name}/{data.task.name}: nothing is removed, because the whole model meets the target in the "
            "form that target.scheme names, its fastest one by default; to get a smaller one, set a stricter target"
        )
    with write_model(out / data.task.name, small, subject.tokenizer) as temporary:
        prove_same(small, temporary, texts_of(data), runtime.longest)
    return Cut(layers=layers, hidden=top(measured.scores.hidden, shape.hidden).tolist())


def texts_of(data: TaskData) -> list[list[str]]:
    """The texts of the first training rows of the task, which verify a saved model."""
    return data.inputs(data.train.select(range(min(PROOF_ROWS, len(data.train)))))
