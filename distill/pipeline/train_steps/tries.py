"""Several trainings of a task's model, with other learning rates or seeds, of which one is kept.

It is the one with the best score on the development rows, the first of equal ones. A model that collapsed is trained
again with other seeds, as in Devlin et al. 2019, arXiv 1810.04805, section 4.1. Mosbach et al. 2021, arXiv 2006.04884,
describe such trainings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from msgspec import UNSET, UnsetType
from msgspec.structs import replace as replace_struct

from distill.config import Train
from distill.errors import UserError
from distill.evaluation.tried import Tried, Try, warnings
from distill.pipeline.artefacts import TaskModel, Trained
from distill.pipeline.runtime import Runtime
from distill.pipeline.train_steps.inputs import MemberInputs
from distill.pipeline.train_steps.prepare import TRIES, forget_training
from distill.pipeline.train_steps.rounds import Part, Rounds
from distill.runtime.storage import atomic, run_folder, structs
from distill.training.nonfinite import NotFinite

SEEDS_APART = 1000
"""Difference between the seeds of two tries: a run with the next seed must not train the same model."""

Fit = Callable[[MemberInputs, str, Runtime], None]
"""(what is trained from, with the rate and the seed; a folder relative to the run folder) writes the model there."""


@dataclass(frozen=True)
class Kept:
    """The try that is kept."""

    inputs: MemberInputs
    folder: Path
    made: TaskModel
    """Its model, with the scores of all tries, and with the tokens and seconds that they took."""


def kept_try(inputs: MemberInputs, settings: Train, task: str, fit: Fit, runtime: Runtime) -> Rounds[Kept]:
    """Train a model of a task with each rate of `settings.factors`, and with other seeds while the best collapsed.

    Each model is stored in a folder of its own until the task's is whole, so that a stopped run trains none again.

    Raises:
        UserError: no training had finite losses, weights and gradients.
    """
    name = f"{inputs.name}/{task}"
    tries = [replace(inputs, lr=inputs.lr * factor) for factor in settings.factors]

    def folder(number: int) -> str:
        return f"{name}{TRIES}/{number + 1}"

    def part(number: int) -> Part:
        return Part(folder(number), partial(_make, tries[number], task, folder(number), fit))

    def model(number: int) -> TaskModel:
        return structs.read(runtime.folder / folder(number) / run_folder.MANIFEST, TaskModel)

    yield [part(number) for number in range(len(tries))]
    made = [model(number) for number in range(len(tries))]
    for retry in range(1, settings.retries + 1):
        best = _best(made)
        tried = made[best].tried
        if tried is None or not tried.collapsed:
            break
        tries.append(replace(tries[best], seed=inputs.seed + retry * SEEDS_APART))
        number = f"try {retry} of {settings.retries}"
        runtime.machine.log(f"{name}: collapsed, and is trained again with seed {tries[-1].seed} ({number})")
        yield [part(len(made))]
        made.append(model(len(made)))
    best = _best(made)
    whole = _with_all(made, best)
    if whole.tried is not None and (failed := whole.tried.kept.failed):
        runtime.machine.wait()  # until every process has read what the tries made
        forget_training(name, runtime)  # the same command trains again, e.g. on another device
        raise UserError(f"{name}: {failed}, in each of {len(made)} tries; lower optimizer.lr or set precision=fp32")
    runtime.machine.wait()  # until every process has read what the tries made
    return Kept(tries[best], runtime.folder / folder(best), whole)


def _make(inputs: MemberInputs, task: str, folder: str, fit: Fit, runtime: Runtime) -> None:
    """Train the model of a try, or write why there is none."""
    machine, began = runtime.machine, time.monotonic()
    try:
        fit(inputs, folder, runtime)
    except NotFinite as error:
        # Another rate or seed may do better, and what was trained with others is not lost. The file that the rest of
        # the message may name is removed.
        failed = Try(lr=inputs.lr, seed=inputs.seed, score=None, failed=str(error).partition(";")[0])
        machine.log(f"{folder}: {failed.failed}")
        if machine.main:
            seconds, tried = time.monotonic() - began, Tried(task=task, chance=None, tries=[failed])
            none = TaskModel(steps=0, tokens=0, seconds=seconds, tried=tried)
            with atomic.writing(runtime.folder / folder) as temporary:
                structs.write(temporary / run_folder.MANIFEST, none)
        machine.accelerator.free_memory()
        forget_training(folder, runtime)
        machine.wait()


def _best(made: Sequence[TaskModel]) -> int:
    """Number of the model with the best score, the first of equal ones; without a model, of the lowest rate."""

    def rank(number: int) -> tuple[bool, float]:
        kept = None if (tried := made[number].tried) is None else tried.kept
        if kept is None:  # of a task without development rows
            return True, 0.0
        return not kept.failed, -kept.lr if kept.score is None else kept.score

    return max(range(len(made)), key=rank)


def _with_all(made: Sequence[TaskModel], best: int) -> TaskModel:
    """The best model, with what all took, and with all scores."""
    kept = made[best]
    if kept.tried is not None:
        every = [(number, one.tried.kept) for number, one in enumerate(made) if one.tried is not None]
        tries = [replace_struct(each, kept=number == best) for number, each in every]
        kept = replace_struct(kept, tried=replace_struct(kept.tried, tries=tries))
    return replace_struct(kept, tokens=sum(one.tokens for one in made), seconds=sum(one.seconds for one in made))


def lines(tried: Tried | None) -> Iterator[str]:
    """Lines on what was tried for a model, and on which try was kept; none for a model without a score."""
    if tried is None:
        return
    if len(tried.tries) > 1:
        parts = [
            f"{each.lr:.2g} with seed {each.seed}: {each.failed or f'{each.score:.1f}'}{' (kept)' * each.kept}"
            for each in tried.tries
        ]
        yield f"learning rates that were tried, and scores on the development rows: {'; '.join(parts)}"
    yield from warnings(tried)


def tried_in(folder: Path, member: int | UnsetType = UNSET) -> list[Tried]:
    """What was tried for each model of a finished train step, or of a member of an ensemble, in a folder."""
    made = structs.read(folder / run_folder.MANIFEST, Trained)
    models = [structs.read(folder / task / run_folder.MANIFEST, TaskModel).tried for task in made.tasks]
    own = [replace_struct(tried, member=member) for tried in models if tried is not None]
    return own + [each for number, part in enumerate(made.members, 1) for each in tried_in(folder / part, number)]
