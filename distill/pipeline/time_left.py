"""How much of a run is done, and how long the rest takes as far as earlier steps tell.

A step is expected to take as long as the same step took before on this machine, with the same teacher and about as many
rows, or as the step of another target took in this run. Otherwise the time of a training is estimated from its number
of tokens and from the tokens per second of the trainings in this run, from the first minute of the first one on.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from distill.config import Train
from distill.config.plan import Step
from distill.data.tasks import TaskData
from distill.pipeline.context import Context
from distill.pipeline.context.keys import needed
from distill.runtime import progress
from distill.runtime.storage import atomic, cache, store
from distill.runtime.storage.checksums import fingerprint
from distill.runtime.versions import processor

PART, FILE = "seconds", "seconds.json"
"""Part of the cache with the seconds that steps took, and the file of an entry."""
SAMPLE = 64
"""Rows whose length in tokens is measured for an estimate."""
SAME_ROWS = 4
"""Numbers of rows count as the same if they are nearest to the same of this many numbers between n and 2 n."""


@dataclass(frozen=True)
class Work:
    """What a training computes."""

    role: str
    steps: float
    """Optimizer steps, of all tasks."""
    tokens: float
    """Tokens of an optimizer step."""

    @property
    def total(self) -> float:
        """Tokens of the training."""
        return self.steps * self.tokens


class Remaining:
    """The steps that a run has to make, and what those that it made took."""

    def __init__(self, ctx: Context, steps: Sequence[Step], end: float | None = None) -> None:
        """`end`: when the budget of the run ends, as `time.monotonic`; None without a budget. With one, the number of
        steps is not known before."""
        self.ctx, self.steps, self.end = ctx, list(steps), end
        self.took: dict[Step, float] = {}
        self.per_token: dict[str, float] = {}
        """Role -> seconds in which a model of this role was trained on a token."""
        self.seen: dict[str, Step] = {}
        """Role -> the first training of a model of this role."""
        self.trained: set[Step] = set()
        """Steps that took an optimizer step. A step may also use a model as it is."""
        measured = end is None and ctx.machine.main and any(isinstance(step.settings, Train) for step in steps)
        lengths = {task: _length(ctx, data) for task, data in ctx.step_tasks.items()} if measured else {}
        self.works = {step: _work(ctx, step, lengths) for step in steps} if measured else {}

    def plan(self, every: Sequence[Step]) -> Iterator[str]:
        """A line for each step of the run: what it does, and how long it took before or that it is finished; none for a
        run with a budget, whose steps are not known before."""
        if self.end is not None or not self.ctx.machine.main:
            return
        known = [self._expected(step) for step in self.steps]
        yield f"plan: {len(every)} step{'s' * (len(every) != 1)}, {time_left(known)}"
        seconds = dict(zip(self.steps, known, strict=True))
        for number, step in enumerate(every, 1):
            last = None if step not in seconds else seconds[step]
            state = "finished earlier" if step not in seconds else "" if last is None else f"about {_minutes(last)}"
            yield f"{number:4}. {step.folder}: {step.settings.about}{'; ' if state else ''}{state}"

    @contextmanager
    def making(self, step: Step) -> Iterator[None]:
        """Say what is done and what is left, and keep the seconds that the block takes to make the step."""
        if not self.ctx.machine.main:
            yield
            return
        if step not in self.steps:
            self.steps.append(step)  # it was not known when the run began
        ahead = self.steps[self.steps.index(step) :] if self.end is None else [step]
        expected, began = [self._expected(each) for each in ahead], time.monotonic()
        resumed = self.ctx.folder.has_parts(step)

        def now(per_update: float | None = None) -> str:
            if self.end is not None:
                return f"step {len(self.took) + 1}, {_minutes(self.end - time.monotonic())} of the budget left"
            self._learn(step, per_update)
            rough = [self._rough(each) if known is None else None for each, known in zip(ahead, expected, strict=True)]
            gone = time.monotonic() - began
            first, *others = [None if each is None or gone > each else each - gone for each in (expected[0], rough[0])]
            left = time_left([first, *expected[1:]], [*others, *rough[1:]])
            return f"step {len(self.steps) - len(ahead) + 1} of {len(self.steps)}, {left}"

        self.ctx.machine.log(f"{step.folder}: {now()}")
        with progress.within(now):
            yield
        if (record := self.ctx.folder.record(step)) is not None:
            self.took[step] = record.cost.seconds or 0.0
            work = self.works.get(step)
            if step in self.trained and work is not None and not resumed:
                self.per_token[work.role] = self.took[step] / work.total
            shortened = self.ctx.epochs.get(step.target, 1.0) < 1
            if not (resumed or record.reused or shortened or self.ctx.config.limit.smoke):
                self._keep(step, self.took[step])

    def _expected(self, step: Step) -> float | None:
        """Seconds that a step will take; None if nothing tells."""
        alike = [seconds for other, seconds in self.took.items() if other.stage == step.stage]
        if (kept := store.found(PART, self._key(step))) is not None:
            with suppress(OSError):  # another run may replace it just now
                return float(atomic.read_json(kept / FILE))
        return fmean(alike) if alike else None

    def _learn(self, step: Step, per_update: float | None) -> None:
        """Learn from the seconds of an optimizer step, if this is the first training of a model of its role."""
        work = self.works.get(step)
        if work is not None and per_update is not None:
            if self.seen.setdefault(work.role, step) is step:
                self.per_token[work.role] = per_update / work.tokens
            self.trained.add(step)

    def _rough(self, step: Step) -> float | None:
        """Seconds that a training will take by its tokens; None for other steps, and before any training tells."""
        work = self.works.get(step)
        if work is None or not self.per_token:
            return None
        return work.total * self.per_token.get(work.role, max(self.per_token.values()))

    def _keep(self, step: Step, seconds: float) -> None:
        """Replace the entry of an earlier run, which may have had less in its cache."""
        # A run does not fail because of a full disk outside of its folder.
        with suppress(OSError), tempfile.TemporaryDirectory() as folder:
            atomic.write_json(Path(folder) / FILE, seconds)
            if cache.most():
                cache.remove(cache.root() / PART / self._key(step))
            store.keep(PART, self._key(step), Path(folder))

    def _key(self, step: Step) -> str:
        """Hash of what the seconds of a step depend on. Seed, content of rows, and earlier steps are left out."""
        ctx, machine = self.ctx, self.ctx.machine
        given = {name: ctx.fingerprint(name) for name in needed(step, ctx.config) if name != "tasks"}
        rows = {task: round(SAME_ROWS * math.log2(len(data.train))) for task, data in ctx.step_tasks.items()}
        arithmetic = [processor(machine), machine.threads, machine.shared_threads, machine.precision]
        of_teacher = getattr(step.settings, "role", "") == "teacher"
        goals = [] if of_teacher else [asdict(step.goal), asdict(ctx.config.student)]
        return fingerprint([step.folder, asdict(step.settings), goals, given, rows, arithmetic, machine.device.type])


def _work(ctx: Context, step: Step, lengths: Mapping[str, float]) -> Work | None:
    """What a training computes; None for other steps, and for passes over a whole corpus.

    `lengths`: task -> mean number of tokens of a row.

    By how much a model is pruned is not known before. It changes the number of steps and their time in opposite
    directions, and is left out.
    """
    settings = step.settings
    if not isinstance(settings, Train):
        return None
    most = min(settings.steps or math.inf, ctx.config.limit.steps or math.inf)
    if settings.data == "corpus":
        return None if most == math.inf else Work(settings.role, most, settings.batch.tokens)
    steps = tokens = 0.0
    for task, data in ctx.step_tasks.items():
        length = lengths[task]
        rows = min(settings.batch.examples or math.inf, settings.batch.tokens / length)
        own = min(max(settings.epochs * len(data.train) / rows, settings.min_steps), most)
        own *= len(settings.factors) + settings.folds - 1
        steps, tokens = steps + own, tokens + own * rows * length
    return Work(settings.role, steps, tokens / steps) if steps else None


def _length(ctx: Context, data: TaskData) -> float:
    """Mean number of tokens of some training rows."""
    rows = data.train.select(range(min(SAMPLE, len(data.train))))
    return float(np.mean(data.encoded(rows, ctx.given.tokenizer, ctx.config.tasks.max_length).lengths))


def time_left(seconds: Sequence[float | None], rough: Sequence[float | None] = ()) -> str:
    """The time that steps take, as a phrase: `seconds` of each, None where nothing is known, and `rough` estimates of
    trainings among these."""
    known = [each for each in seconds if each is not None]
    estimated = [each for each in rough if each is not None]
    if not known and not estimated:
        return "time left unknown"
    minutes = _minutes(sum(known) + sum(estimated))
    unknown = len(seconds) - len(known) - len(estimated)
    if estimated:
        return f"roughly {minutes} {'of training ' if unknown else ''}left"
    return f"{minutes} or more left" if unknown else f"about {minutes} left"


def _minutes(seconds: float) -> str:
    minutes = math.ceil(max(seconds, 0.0) / 60)
    return f"{minutes} minute" if minutes == 1 else f"{minutes} minutes"
