"""The search for the shape of a prune step's models, and what else depends on the times of shapes on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distill.compression.pruning.goal import Goal
from distill.compression.pruning.search import Choice, evenness
from distill.compression.pruning.target import (
    KNOTS,
    PARTS,
    SMOKE_KNOTS,
    SMOKE_PARTS,
    Search,
    candidates,
    requested_shape,
    shape_of,
)
from distill.compression.pruning.times import Timer
from distill.config import Prune, Quantize, Student, Target
from distill.config.loads import SINGLE, load_of
from distill.config.plan import STUDENT, Source, Step, tokenizer_of
from distill.config.schemes import SCHEMES, Form
from distill.data.asked import Asked
from distill.data.tasks import TaskData
from distill.deploy.export import untrained
from distill.inference import latency, timing
from distill.inference.runners import Batch, joined
from distill.models import teacher
from distill.pipeline.artefacts import Quantized
from distill.pipeline.context import Context
from distill.pipeline.context.folder import CHOICE
from distill.pipeline.runtime import Runtime
from distill.runtime.machine import detect_precision
from distill.runtime.precision import HALVES
from distill.runtime.storage import atomic, structs
from distill.runtime.versions import processor

_MASK = "attention_mask"
"""Name of the masks in a batch, and the end of their names in one that is joined."""

SAMPLE = 64
"""Rows of each task whose lengths are timed."""


@dataclass(frozen=True)
class SearchInputs:
    """What the search for the shape of a prune step reads."""

    stage: str
    goal: Target
    searched: bool
    """Whether a shape is searched for the goal; if false, the student has its sizes."""
    dimensions: list[str]
    student: Student
    """The sizes that are asked for."""
    forms: Sequence[Form]
    """The forms in which the models may serve."""
    teachers: Sequence[str]
    """Folder of each given teacher: several of an ensemble, whose times add up."""
    tokenizer: Any
    """Of the models that are pruned. A vocabulary stage leaves texts about as long as the tokenizer that it cuts."""
    of_teachers: Sequence[Any]
    """The tokenizer of each teacher."""
    tasks: Mapping[str, TaskData]
    """Name -> task of whose texts the lengths are timed; empty with a fixed `target.shape`."""
    times: Path
    """Folder of the times that the stage measured, which all its targets share."""
    measured: Path
    """Folder of the other measurements."""
    target: str
    own_vocabulary: bool
    """Whether the models have another vocabulary than the given ones."""

    @property
    def shape_file(self) -> Path:
        """File of the shape that was chosen for the target."""
        return self.measured / f"shape{self.target}.json"

    @property
    def seconds_file(self) -> Path:
        """File of the seconds that the prune step took so far."""
        return self.measured / f"seconds{self.target}.json"


def search_inputs(ctx: Context, step: Step, tasks: Mapping[str, TaskData] | None = None) -> SearchInputs:
    """What the search of a prune step reads. It loads no rows if the target has a fixed shape, or `tasks` are given."""
    return SearchInputs(
        stage=step.stage,
        goal=step.goal,
        searched=ctx.plan.has_target,
        dimensions=step.settings.dimensions,
        student=ctx.config.student,
        forms=forms_of(ctx, step.goal),
        teachers=ctx.given.teachers,
        tokenizer=ctx.given.student_tokenizer if _read_by(step) is STUDENT else ctx.given.tokenizer,
        of_teachers=ctx.given.tokenizers,
        tasks={} if step.goal.shape != timing.OWN else ctx.tasks if tasks is None else tasks,
        times=ctx.folder.times(step),
        measured=ctx.folder.measured(step),
        target=step.target,
        own_vocabulary=isinstance(step.tokenizer, Step),
    )


def _read_by(step: Step) -> Source:
    """The given model whose tokenizer a step's models have, or one that a vocabulary step made of it."""
    owner = step.tokenizer
    while isinstance(owner, Step):
        owner = tokenizer_of(owner.start)
    return owner


def forms_of(ctx: Context, target: Target) -> list[Form]:
    """The forms in which the models of a target may serve on this machine."""
    machine = ctx.machine
    made = (name for step in ctx.plan.of(Quantize) for name in step.settings.schemes)
    cuda = machine.device.type == "cuda"
    precision = machine.precision if cuda else detect_precision("auto", machine.device)
    # A budget decides by scores on development rows, on which forms in bfloat16 have none.
    smoke, scored = ctx.config.limit.smoke, ctx.config.budget.minutes is not None
    half = precision if precision in HALVES and (cuda or not (smoke or scored)) else None
    forms = untrained.forms_of(target, dict.fromkeys(made), cuda=cuda, half=half)
    without = unfit(ctx)
    forms = [form for form in forms if form.key not in without]
    return forms[-1:] if smoke else forms  # which of several is fastest has no meaning for tiny models


def unfit(ctx: Context) -> list[str]:
    """The schemes in which a run with a budget found that the teacher has no file, or loses more than the limits. No
    model is searched for them, because one that is cut from the teacher is taken to lose more."""
    if ctx.config.budget.minutes is None or ctx.config.target.scheme is not None:
        return []
    steps = (step for step in ctx.plan.of(Quantize) if not step.target and ctx.folder.finished(step))
    failed = {name for step in steps for name in ctx.folder.result(step, Quantized).failed}
    return [name for name in SCHEMES if name in failed]


def batches(inputs: SearchInputs, longest: int, tokenizers: Sequence[Any] = ()) -> list[Batch]:
    """Random tokens of `target.shape`; or with `own`, of the lengths of the tasks' texts, in batches of up to eight
    texts or, under a load of single texts, of one. Those of several `tokenizers` are joined; by default they are of
    that of the models that are pruned. `longest`: number of tokens from which on texts are cut."""
    shape = inputs.goal.shape
    if shape != timing.OWN:
        return [latency.synthetic((shape[0], shape[1]), untrained.VOCABULARY)]
    rows = timing.drawn([_sample(data) for data in inputs.tasks.values()], timing.TASK_ROWS)
    one = load_of(inputs.goal) == SINGLE
    # By the tokens of the first teacher, as an evaluate step does.
    parts = [[row] for row in rows] if one else timing.by_length(rows, inputs.of_teachers[0], longest)
    every = tokenizers or [inputs.tokenizer]
    whole = [joined([timing.tokenized(part, each, longest) for each in every]) for part in parts]
    return untrained.random_tokens(whole if one else [part for batch in whole for part in timing.divided(batch)])


def _lengths(timed: Sequence[Batch]) -> list[list[list[int]]]:
    """Number of tokens of each sequence of each batch: several lists for models whose tokenizers make other numbers."""
    every = [[values.sum(1).tolist() for key, values in each.items() if key.endswith(_MASK)] for each in timed]
    return [[one for number, one in enumerate(own) if one not in own[:number]] for own in every]


def _sample(data: TaskData) -> list[Asked]:
    """Some training rows of a task."""
    count = min(SAMPLE, len(data.train))
    return data.asked(data.train.select(np.random.default_rng(0).permutation(len(data.train))[:count]))


def search_of(inputs: SearchInputs, runtime: Runtime, whole: Any, start: Any = None) -> Search:
    """The search for the shape of a step. `whole`: config of the unpruned models; `start`: of the models that the step
    prunes, where these were pruned before."""
    limit, machine, config = runtime.limit, runtime.machine, start or whole
    timed_batches, of_teachers, widths = list[Batch](), None, None
    if inputs.searched:  # of the sizes that the unpruned models may be cut to, so that they are timed once for all
        every = candidates(whole, inputs.dimensions, SMOKE_PARTS if limit.smoke else PARTS)
        shapes = [shape for shape in every if shape.within(shape_of(config))]
        widths = {shape.hidden for shape in every}, {shape.ffn for shape in every}
        timed_batches = batches(inputs, runtime.longest)
        other = batches(inputs, runtime.longest, inputs.of_teachers)
        of_teachers = other if _lengths(other) != _lengths(timed_batches) else None
    else:
        shapes = [requested_shape(config, inputs.student)]

    def log(text: str) -> None:
        machine.log(f"{inputs.stage}: {text}")

    own, single = inputs.goal.shape == timing.OWN, load_of(inputs.goal) == SINGLE
    times = Timer(
        timed_batches,
        log,
        repeats=min(untrained.REPEATS, limit.repeats or untrained.REPEATS),
        parts=timing.TASK_ROWS if own and not single else 1,
        apart=own and single,
        least_ms=latency.SMOKE_MS if limit.smoke else latency.LEAST_MS,
    )
    conditions: dict[str, Any] = {"inputs": [batch[_MASK].sum(1).tolist() for batch in timed_batches]}
    conditions |= {} if of_teachers is None else {"inputs_of_teachers": _lengths(of_teachers)}
    return untrained.search_in(
        inputs.goal,
        inputs.forms,
        config,
        shapes,
        times,
        lambda: [teacher.read_config(folder) for folder in inputs.teachers],
        device=machine.device.type,
        threads=machine.threads,
        folder=inputs.times,
        log=log,
        conditions=conditions | {"processor": processor(machine)},
        shared=not limit.smoke and times.repeats == untrained.REPEATS,
        widths=widths,
        checked=not limit.smoke,
        knots=SMOKE_KNOTS if limit.smoke else KNOTS,
        of_teachers=of_teachers,
    )


def check_reach(inputs: SearchInputs, runtime: Runtime, config: Any) -> None:
    """Raise ConfigError for a target that no model pruned from one of this config can meet on this machine."""
    if runtime.limit.smoke or not inputs.searched or inputs.shape_file.is_file():
        return
    with timed(inputs.seconds_file):
        # Sizes cannot be checked before a vocabulary stage has run, which reduces them.
        search_of(inputs, runtime, config).check(sized=not inputs.own_vocabulary)


def goal_inputs(ctx: Context, step: Step) -> tuple[SearchInputs, Path, Path]:
    """What the goal of the gates of a train step is found from, as the first arguments of `goal_of_gates`."""
    pruner = next(other for other in ctx.plan.of(Prune) if other.gated is step)
    start = ctx.checkpoint(step.start, next(iter(ctx.tasks)))
    return search_inputs(ctx, pruner), start, ctx.folder.of(step) / CHOICE


def goal_of_gates(inputs: SearchInputs, start: Path, file: Path, kind: str, runtime: Runtime) -> Goal:
    """The goal to which gates are trained: the target, or the sizes, of the prune step that prunes by them.

    Movement gates need a shape before they are trained: the shape that meets the target by the most even scaling of the
    model. It is stored in `file`, so that a stopped run resumes. `inputs`: of that prune step; `start`: folder of a
    model that the gates are put on.
    """
    machine = runtime.machine
    search = search_of(inputs, runtime, teacher.read_config(start))
    if not inputs.searched:
        return Goal(search.shapes)
    # The other processes read what the main process measured and chose.
    with machine.main_first(), timed(inputs.seconds_file) if machine.main else nullcontext():
        if kind == "l0":
            return search.goal()
        if not file.is_file():
            structs.write(file, search.choice(evenness(search.full)))
    choice = structs.read(file, Choice)
    return Goal([choice.shape], choice=choice)


@contextmanager
def timed(file: Path) -> Iterator[None]:
    """Add the seconds of the block to the seconds stored in `file`, which include stopped runs."""
    began = time.monotonic()
    before = atomic.read_json(file) if file.is_file() else 0.0
    try:
        yield
    finally:
        atomic.write_json(file, before + time.monotonic() - began)
