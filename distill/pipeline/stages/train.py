"""Train stage: trains on the corpus or on every task, with or without a teacher; teachers of an ensemble one by one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distill.compression.pruning.goal import Goal
from distill.compression.pruning.sensitivity import read
from distill.compression.pruning.target import shape_of
from distill.config import NO_TEACHER, Batch, Student, Train
from distill.config.baselines import SELF_TRAINED
from distill.config.plan import STUDENT, TEACHER, Given, Source, Step
from distill.config.together import together
from distill.data.members import read_by
from distill.data.tasks import TaskData
from distill.models import teacher
from distill.models.student.shape import setting
from distill.pipeline.artefacts import Pruned, TaskModel, Trained
from distill.pipeline.context import Context
from distill.pipeline.context.checkpoints import WHOLE, Checkpoints
from distill.pipeline.context.folder import RunFolder
from distill.pipeline.context.keys import has_own_seed
from distill.pipeline.runtime import Runtime
from distill.pipeline.stages.shape_search import goal_inputs, goal_of_gates
from distill.pipeline.stages.shares import divided
from distill.pipeline.train_steps.corpus import on_corpus
from distill.pipeline.train_steps.inputs import Beside, MemberInputs, TrainInputs
from distill.pipeline.train_steps.layer_map import Average, Origin, averaged, origin
from distill.pipeline.train_steps.prepare import Build, forget_training, learning_rate, length, took, write_manifest
from distill.pipeline.train_steps.shared_tasks import on_all_tasks
from distill.pipeline.train_steps.tasks import rounds
from distill.pipeline.train_steps.teacher_logits import CROSS_FITTED, Labeller, learned_weights
from distill.pipeline.train_steps.transfer import Sources
from distill.pipeline.train_steps.tries import lines
from distill.runtime.machine import Machine
from distill.runtime.storage import run_folder, store, structs
from distill.training.batching import GPU_TOKENS

SLOWEST = 1.5
"""Processes that train a task together are less than their number times as fast: they exchange gradients in each step,
and have few rows each."""


def inputs(ctx: Context, step: Step) -> TrainInputs:
    """What a train step reads, when the steps before it are finished."""
    own = _inputs(ctx, step)
    if ctx.machine.accelerator.num_processes == 1 or ctx.config.budget.minutes is not None:
        return own
    return replace(own, beside=[_beside(ctx, other) for other in together(ctx.plan, step) if other is not step])


def _beside(ctx: Context, step: Step) -> Beside:
    (member,) = _inputs(ctx, step).members
    made = ctx.folder.finished(step) or store.found("models", ctx.keys.of(step).name) is not None
    return Beside(member, step.settings, not ctx.machine.agreed(made))


def _inputs(ctx: Context, step: Step) -> TrainInputs:
    settings: Train = step.settings
    config, given, tasks, source = ctx.config, ctx.given, ctx.step_tasks, step.teacher
    is_teacher = settings.role == "teacher"
    start, models = ctx.models(step.start), [WHOLE] if step.on_corpus else list(tasks)
    average = functools.cache(functools.partial(_average, ctx.folder, list(tasks)))
    compression = _compression(step, ctx.folder, ctx.models, next(iter(tasks), WHOLE))
    of_lineage = given.student if step.lineage[-1] is STUDENT else given.teacher

    own = None if ctx.plan.given_student else config.student

    def depth() -> int:
        return int(teacher.read_config(given.teacher, given.key).num_hidden_layers)

    # A model of the corpus was cut once for all tasks. The heads of tasks are cut to it.
    one_for_all = step.pruner if isinstance(step.start, Step) and step.start.on_corpus else None
    cuts = one_for_all if settings.shape_of is None else step.pruner

    build = None
    if settings.build_student:
        words = given.student_tokenizer if step.tokenizer is STUDENT else None
        build = Build(config.student, words, given.tokenizer, teacher.pooling(given.teacher))

    labeller = None
    if source is not None:
        files = {source.name: ctx.fingerprint(source.name)} if isinstance(source, Given) else {}
        # Other models, a pruned teacher that recovered among them, read whole texts when they are trained.
        reads_windows = isinstance(source, Given) or getattr(source.settings, "role", None) == "teacher"
        window = config.teacher.window if reads_windows else None
        labeller = Labeller(
            ctx.models(source),
            window,
            _cross_fitted(source, ctx.folder, models),
            functools.partial(ctx.check_unchanged, files),
            soft_first=settings.role != SELF_TRAINED,
        )

    replaces = step.source("generator")
    generator = None if replaces is None else ctx.models(replaces).folder()

    transfer = None
    if settings.transfer and source is not None and config.teacher.kind != NO_TEACHER and config.transfer.times > 0:
        transfer = Sources(
            config.transfer, tasks, ctx.held_out, ctx.unlabelled, lambda: ctx.texts, given.teacher, given.tokenizer,
            given.masked_lm,
        )  # fmt: skip

    goal = None
    if settings.gates.trained:
        goal = functools.partial(goal_of_gates, *goal_inputs(ctx, step), settings.gates.kind)

    def member(number: int, name: str) -> MemberInputs:
        return MemberInputs(
            name=name,
            tasks={task: read_by(data, number) for task, data in tasks.items()},
            corpus=functools.partial(ctx.corpus, step),
            start={task: start.folder(task, number) for task in models},
            tokenizer=ctx.tokenizer(step, number),
            given=given.teacher,
            given_tokenizer=given.tokenizer,
            own_width=len(given.teachers) > 1,
            pooler=given.teachers[number] if keeps_pooler(step, config.student) else None,
            unpruned=None if one_for_all is None else ctx.models(one_for_all.start),
            average=None if cuts is None else average(cuts),
            build=build,
            teacher=labeller,
            generator=generator,
            origin=functools.partial(_origin, step, own, depth, ctx.folder, average),
            window=config.teacher.window if is_teacher else None,
            holds_out=is_teacher and config.teacher.weights == "learned",
            transfer=transfer,
            goal=goal,
            shared=ctx.shares_encoder(settings),
            seed=seed + number,
            lr=learning_rate(settings, int(setting(teacher.read_config(of_lineage), "hidden_size")), compression),
            length=length(settings, ctx.epochs.get(step.target, 1.0), compression, config.limit),
        )

    own_seed = config.teacher.seed if has_own_seed(config, settings) else None
    seed = config.seed if own_seed is None else own_seed
    count = len(given.teachers) if is_teacher else 1
    names = [step.folder] if count == 1 else [f"{step.folder}/{number + 1}" for number in range(count)]
    return TrainInputs(step.folder, [member(number, name) for number, name in enumerate(names)])


def keeps_pooler(step: Step, student: Student) -> bool:
    """Whether a step starts from the given teacher, trained meanwhile or not, or from a student with its layers."""
    start = step.start
    built = isinstance(start, Step) and start.builder is not None
    return step.lineage[-1] is TEACHER and (not built or student.init == "teacher_layers")


def _average(folder: RunFolder, tasks: Sequence[str], pruner: Step) -> Average:
    """What one model for all tasks keeps, in the shape that a prune step chose and by what it measured."""
    measured = [read(folder.measured(pruner) / task) for task in tasks]
    return averaged(folder.result(pruner, Pruned).shape, measured)


def _compression(step: Step, folder: RunFolder, models: Callable[[Source], Checkpoints], task: str) -> float:
    """The number of weights in the layers of a step's models before pruning, divided by the number after it; 1 if they
    were not pruned.

    The weights of the matrices of attention and of the feed-forward part count: layers x width x (4 width + 2 FFN).
    """
    pruner, first = step.pruner, step.first_pruner
    if pruner is None or first is None or pruner is step:
        return 1.0
    before = shape_of(teacher.read_config(models(first.start).folder(task)))
    return before.weights / folder.result(pruner, Pruned).shape.weights


def _origin(
    step: Step,
    student: Student | None,
    depth: Callable[[], int],
    folder: RunFolder,
    average: Callable[[Step], Average],
    task: str,
) -> Origin:
    """The parts of the teacher that a step's student of a task, or of `WHOLE`, was copied from."""

    def kept(cutter: Step) -> Origin:
        if cutter.pruner is not None and cutter.pruner is not cutter:
            return average(cutter.pruner).origin
        cuts = folder.result(cutter, Pruned).tasks
        cut = next(iter(cuts.values())) if task == WHOLE else cuts[task]
        return Origin(cut.layers, cut.hidden)

    return origin(step, student, depth, kept)


def _cross_fitted(source: Source, folder: RunFolder, tasks: Sequence[str]) -> dict[str, Path]:
    """Task -> file of the logits of the models of a teacher's folds."""
    files = {task: folder.of(source) / task / CROSS_FITTED for task in tasks} if isinstance(source, Step) else {}
    return {task: file for task, file in files.items() if file.is_file()}


def run(inputs: TrainInputs, settings: Train, runtime: Runtime) -> Trained:
    """Train the step's models and save them in its folder."""
    first, *others = inputs.members
    if not others:
        return _trained(first, settings, runtime, inputs.beside)
    beside = [Beside(each, settings, pending=True) for each in inputs.members if each.goal is None]
    parts = [_trained(each, settings, runtime, beside[number:]) for number, each in enumerate(inputs.members, 1)]
    weights = {}
    if runtime.machine.main and first.holds_out and settings.data == "tasks":
        tokenizers = [member.tokenizer for member in inputs.members]
        for task, data in first.tasks.items():
            folders = [runtime.folder / member.name / task for member in inputs.members]
            weights[task] = learned_weights(folders, tokenizers, data, first.window, runtime)
    whole = Trained(
        **_sum(parts),
        members=[Path(member.name).name for member in inputs.members],
        weights=weights,
        skipped=parts[0].skipped if all(part.skipped for part in parts) else None,
    )
    return write_manifest(inputs.name, whole, runtime)


def _trained(inputs: MemberInputs, settings: Train, runtime: Runtime, beside: Sequence[Beside] = ()) -> Trained:
    """Train one model on the corpus, or one on each task, and models of the steps `beside` that other processes train
    meanwhile.

    What finished is not trained again: a run may be stopped between the training and the end of its step.
    """
    name, machine = inputs.name, runtime.machine
    finished = run_folder.finished(runtime.folder / name)
    machine.wait()  # until every process has looked
    if finished:
        forget_training(name, runtime)
        return structs.read(runtime.folder / name / run_folder.MANIFEST, Trained)
    if settings.data == "corpus":
        return on_corpus(inputs, settings, runtime)
    if inputs.shared:
        made = write_manifest(name, on_all_tasks(inputs, settings, runtime), runtime)
        forget_training(name, runtime)
        return made
    goal = None if inputs.goal is None else inputs.goal(runtime)
    every = [Beside(inputs, settings, pending=True), *beside]
    jobs = {f"{each.inputs.name}/{task}": _Job(each, task) for each in every for task in each.inputs.tasks}
    done = [job for job in jobs if run_folder.finished(runtime.folder / job)]
    for job in done:
        forget_training(job, runtime)
    pending = [job for job, of in jobs.items() if of.step.pending and job not in done]
    several = machine.accelerator.num_processes > 1
    for group in [pending] if several else [[job] for job in pending]:
        _train(jobs, group, goal, runtime)
        for job in group:
            for line in lines(structs.read(runtime.folder / job / run_folder.MANIFEST, TaskModel).tried):
                machine.log(f"{job}: {line}")
    parts = {t: structs.read(runtime.folder / name / t / run_folder.MANIFEST, TaskModel) for t in inputs.tasks}
    made = Trained(
        **_sum(list(parts.values())),
        tasks=list(parts),
        choice=None if goal is None else goal.choice,
        expected={task: part.expected for task, part in parts.items() if part.expected},
    )
    return write_manifest(name, made, runtime)


@dataclass(frozen=True)
class _Job:
    """The model of a task that is to be trained."""

    step: Beside
    task: str

    @property
    def data(self) -> TaskData:
        return self.step.inputs.tasks[self.task]

    @property
    def steps(self) -> float:
        """Optimizer steps of one of its trainings, about."""
        settings = self.step.settings
        return max(settings.min_steps, settings.epochs * len(self.data.train) / (settings.batch.examples or 1))


def _train(jobs: Mapping[str, _Job], group: Sequence[str], goal: Goal | None, runtime: Runtime) -> None:
    """Train the models of a `group` of jobs, in rounds, each of which all processes finish before the next begins.
    `goal`: what gates are trained to reach. Steps with gates are trained by themselves."""
    plans = {
        name: rounds(job.step.inputs, job.step.settings, runtime, job.data, goal)
        for name, job in jobs.items()
        if name in group
    }
    while parts := {name: found for name, plan in plans.items() if (found := next(plan, None)) is not None}:
        # Of all jobs: what goes on must be computed as it began, whatever else has finished in between.
        cost = {name: job.steps for name, job in jobs.items() if name not in parts}
        cost |= {part.folder: jobs[name].steps for name, found in parts.items() for part in found}
        every = {part.folder: part for found in parts.values() for part in found}
        pending = [folder for folder in every if not run_folder.finished(runtime.folder / folder)]
        own, share = _divided(cost, pending, [job.step.settings.batch for job in jobs.values()], runtime)
        for folder in share:
            every[folder].train(own)
        runtime.machine.wait()
        runtime.machine.see(runtime.folder / folder / run_folder.MANIFEST for folder in every)
    runtime.machine.see(runtime.folder / name / run_folder.MANIFEST for name in plans)


def _divided(
    cost: Mapping[str, float], pending: list[str], batches: Sequence[Batch], runtime: Runtime
) -> tuple[Runtime, list[str]]:
    """The pending trainings of this process, and where: its share by itself, or all of them with the others. `cost`:
    folder of each training, finished ones among them -> its number of steps; `batches`: of these trainings."""
    machine = runtime.machine
    processes = machine.accelerator.num_processes
    machine.wait()  # until every process has read which are pending
    if one_by_one(cost, processes) and not any(short(batch, runtime.longest, machine) for batch in batches):
        return runtime, pending
    shares = divided({job: cost[job] for job in pending}, processes)
    if pending:
        machine.log(f"trainings of each process: {'; '.join(', '.join(share) or 'none' for share in shares)}")
    return runtime.single_process(), shares[machine.accelerator.process_index]


def one_by_one(cost: Mapping[str, float], processes: int) -> bool:
    """Whether all processes train the tasks one by one, each of them together.

    They do if giving each task to one process would take more than `SLOWEST` times as long as an even division.
    """
    longest = max(sum(cost[task] for task in share) for share in divided(cost, processes))
    return processes == 1 or longest > SLOWEST * sum(cost.values()) / processes


def short(batch: Batch, longest: int, machine: Machine) -> bool:
    """Whether the part of a step that each of several GPUs gets would take as long as the whole step. `longest`:
    maximum tokens of a row."""
    tokens = min(batch.tokens, batch.tokens if batch.examples is None else batch.examples * longest)
    return machine.device.type == "cuda" and 1 < machine.accelerator.num_processes > tokens / GPU_TOKENS


def _sum(parts: Sequence[TaskModel | Trained]) -> dict[str, Any]:
    """What several trainings took, as fields of `Trained`. A skipped one has no seconds."""
    seconds = sum(part.seconds or 0.0 for part in parts)
    return took(sum(part.steps for part in parts), sum(part.tokens for part in parts), seconds)
