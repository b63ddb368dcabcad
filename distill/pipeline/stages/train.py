"""Train stage: trains on the corpus or on every task, with or without a teacher; teachers of an ensemble one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distill.config import Train
from distill.config.plan import Step
from distill.pipeline.artefacts import TaskModel, Trained
from distill.pipeline.context import Context
from distill.pipeline.stages.shape_search import goal_inputs, goal_of_gates
from distill.pipeline.train_steps.corpus import on_corpus
from distill.pipeline.train_steps.prepare import forget_training, speed, write_manifest
from distill.pipeline.train_steps.tasks import on_all_tasks, on_task
from distill.pipeline.train_steps.teacher_logits import learned_weights
from distill.runtime.storage import run_folder, structs

SLOWEST = 1.5
"""Processes that train a task together are less than their number times as fast: they exchange gradients in each step,
and have few rows each."""


def run(ctx: Context, step: Step) -> Trained:
    """Train the step's models and save them in its folder."""
    settings: Train = step.settings
    if settings.role != "teacher" or len(ctx.given.teachers) == 1:
        return _trained(ctx, step, 0, step.folder)
    members = [str(number + 1) for number in range(len(ctx.given.teachers))]
    parts = []
    for number, member in enumerate(members):
        name = f"{step.folder}/{member}"
        parts.append(_trained(ctx, step, number, name))
    weights = {}
    if ctx.machine.main and ctx.config.teacher.weights == "learned" and settings.data == "tasks":
        folders = {task: [ctx.folder.of(step) / member / task for member in members] for task in ctx.tasks}
        weights = {task: learned_weights(ctx, folders[task], data) for task, data in ctx.tasks.items()}
    steps, tokens, seconds = _sum(parts)
    whole = Trained(
        steps=steps,
        tokens=tokens,
        seconds=seconds,
        tokens_per_second=speed(tokens, seconds),
        members=members,
        weights=weights,
        skipped=parts[0].skipped if all(part.skipped for part in parts) else None,
    )
    return write_manifest(ctx, step.folder, whole)


def _trained(ctx: Context, step: Step, member: int, name: str) -> Trained:
    """Train one model on the corpus, or one on each task, in the folder `name`.

    What finished is not trained again: a run may be stopped between the training and the end of its step.
    """
    settings: Train = step.settings
    finished = run_folder.finished(ctx.folder.path / name)
    ctx.machine.wait()  # until every process has looked
    if finished:
        forget_training(ctx, name)
        return structs.read(ctx.folder.path / name / run_folder.MANIFEST, Trained)
    if settings.data == "corpus":
        return on_corpus(ctx, step, member, name)
    if ctx.shares_encoder(settings):
        made = write_manifest(ctx, name, on_all_tasks(ctx, step, name))
        forget_training(ctx, name)
        return made
    gated = settings.gates.trained
    goal = goal_of_gates(goal_inputs(ctx, step), settings.gates.kind, ctx.runtime) if gated else None
    pending = [task for task in ctx.tasks if not run_folder.finished(ctx.folder.path / name / task)]
    for task in ctx.tasks.keys() - pending:
        forget_training(ctx, f"{name}/{task}")
    for own, task in _divided(ctx, settings, pending):
        on_task(own, step, ctx.tasks[task], member, f"{name}/{task}", goal)
    ctx.machine.wait()
    parts = {t: structs.read(ctx.folder.path / name / t / run_folder.MANIFEST, TaskModel) for t in ctx.tasks}
    steps, tokens, seconds = _sum(list(parts.values()))
    made = Trained(
        steps=steps,
        tokens=tokens,
        seconds=seconds,
        tokens_per_second=speed(tokens, seconds),
        tasks=list(parts),
        choice=None if goal is None else goal.choice,
        expected={task: part.expected for task, part in parts.items() if part.expected},
    )
    return write_manifest(ctx, name, made)


def _divided(ctx: Context, settings: Train, pending: list[str]) -> list[tuple[Context, str]]:
    """The tasks whose models this process trains: its own share by itself, or all of them together with the others."""
    batch, processes = settings.batch.examples or 1, ctx.machine.accelerator.num_processes
    steps = {task: max(settings.min_steps, settings.epochs * len(ctx.tasks[task].train) / batch) for task in ctx.tasks}
    ctx.machine.wait()  # until every process has read which are pending
    # Of all tasks: a training that goes on must be computed as it began, whatever else has finished in between.
    if one_by_one(steps, processes):
        return [(ctx, task) for task in pending]
    shares = divided({task: steps[task] for task in pending}, processes)
    ctx.machine.log(f"tasks of each process: {'; '.join(', '.join(share) or 'none' for share in shares)}")
    return [(ctx.single_process(), task) for task in shares[ctx.machine.accelerator.process_index]]


def divided(cost: Mapping[str, float], processes: int) -> list[list[str]]:
    """The tasks of each process: the largest first, each to the process with the least.

    Graham 1969, SIAM Journal on Applied Mathematics 17.
    """
    shares: list[list[str]] = [[] for _ in range(processes)]
    loads = [0.0] * processes
    for task in sorted(cost, key=lambda name: -cost[name]):
        least = loads.index(min(loads))
        shares[least].append(task)
        loads[least] += cost[task]
    return shares


def one_by_one(cost: Mapping[str, float], processes: int) -> bool:
    """Whether all processes train the tasks one by one, each of them together.

    They do if giving each task to one process would take more than `SLOWEST` times as long as an even division.
    """
    longest = max(sum(cost[task] for task in share) for share in divided(cost, processes))
    return processes == 1 or longest > SLOWEST * sum(cost.values()) / processes


def _sum(parts: Sequence[TaskModel | Trained]) -> tuple[int, int, float]:
    """Total steps, tokens and seconds of several trainings. A skipped one has none."""
    seconds = sum(part.seconds or 0.0 for part in parts)
    return sum(part.steps for part in parts), sum(part.tokens for part in parts), seconds
