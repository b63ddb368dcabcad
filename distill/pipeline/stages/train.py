"""Train stage: trains on the corpus or on every task, with or without a teacher; teachers of an ensemble one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distill.config import Train
from distill.config.plan import Step
from distill.pipeline.context import Context
from distill.pipeline.stages.shape_search import goal_of_gates
from distill.pipeline.train_steps.corpus import on_corpus
from distill.pipeline.train_steps.prepare import forget_training, write_manifest
from distill.pipeline.train_steps.tasks import on_all_tasks, on_task
from distill.pipeline.train_steps.teacher_logits import learned_weights
from distill.runtime.storage import run_folder

SLOWEST = 1.5
"""Processes that train a task together are less than their number times as fast: they exchange gradients in each step,
and have few rows each."""


def run(ctx: Context, step: Step) -> dict[str, Any]:
    """Train the step's models and save them in its folder. Returns the manifest."""
    settings: Train = step.settings
    if settings.role != "teacher" or len(ctx.given.teachers) == 1:
        return _trained(ctx, step, 0, step.folder)
    members = [str(number + 1) for number in range(len(ctx.given.teachers))]
    parts = []
    for number, member in enumerate(members):
        name = f"{step.folder}/{member}"
        _trained(ctx, step, number, name)
        parts.append(run_folder.read_json(ctx.folder.path / name / run_folder.MANIFEST))
    manifest: dict[str, Any] = {"members": members} | _sum([part for part in parts if "skipped" not in part])
    if all("skipped" in part for part in parts):
        manifest["skipped"] = parts[0]["skipped"]
    if ctx.machine.main:
        if ctx.config.teacher.weights == "learned" and settings.data == "tasks":
            folders = {task: [ctx.folder.of(step) / member / task for member in members] for task in ctx.tasks}
            manifest["weights"] = {t: learned_weights(ctx, folders[t], data) for t, data in ctx.tasks.items()}
        run_folder.write_json(ctx.folder.of(step) / run_folder.MANIFEST, manifest)
    ctx.machine.wait()
    return manifest


def _trained(ctx: Context, step: Step, member: int, name: str) -> dict[str, Any]:
    """Train one model on the corpus, or one on each task, in the folder `name`. Returns the manifest.

    What finished is not trained again: a run may be stopped between the training and the end of its step.
    """
    settings: Train = step.settings
    finished = run_folder.finished(ctx.folder.path / name)
    ctx.machine.wait()  # until every process has looked
    if finished:
        forget_training(ctx, name)
        manifest: dict[str, Any] = run_folder.read_json(ctx.folder.path / name / run_folder.MANIFEST)
        return manifest
    if settings.data == "corpus":
        return on_corpus(ctx, step, member, name)
    if ctx.shares_encoder(settings):
        manifest = {"tasks": list(ctx.tasks), **on_all_tasks(ctx, step, name)}
        manifest = write_manifest(ctx, name, manifest)
        forget_training(ctx, name)
        return manifest
    parts, goal = {}, goal_of_gates(ctx, step) if settings.gates.trained else None
    pending = [task for task in ctx.tasks if not run_folder.finished(ctx.folder.path / name / task)]
    for task in ctx.tasks.keys() - pending:
        forget_training(ctx, f"{name}/{task}")
    for own, task in _divided(ctx, settings, pending):
        on_task(own, step, ctx.tasks[task], member, f"{name}/{task}", goal)
    ctx.machine.wait()
    for task in ctx.tasks:
        parts[task] = run_folder.read_json(ctx.folder.path / name / task / run_folder.MANIFEST)
    manifest = {"tasks": list(parts)} | _sum(list(parts.values()))
    if goal is not None:
        manifest |= {"choice": goal.choice, "expected": {t: p["expected"] for t, p in parts.items() if "expected" in p}}
    return write_manifest(ctx, name, manifest)


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


def _sum(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    """Total steps, tokens and seconds of several trainings."""
    seconds, tokens = sum(m["seconds"] for m in manifests), sum(m["tokens"] for m in manifests)
    row = {"steps": sum(m["steps"] for m in manifests), "tokens": tokens, "seconds": seconds}
    return row | {"tokens_per_second": tokens / max(seconds, 1e-9)}
