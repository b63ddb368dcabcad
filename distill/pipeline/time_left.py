"""How much of a run is done, and how long the rest takes as far as earlier steps tell.

A step is expected to take as long as the same step took before on this machine, with the same teacher and about as many
rows, or as the step of another target took in this run.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

from distill.config.plan import Step
from distill.pipeline.context import Context
from distill.pipeline.context.keys import needed
from distill.runtime import progress
from distill.runtime.storage import atomic, cache, store
from distill.runtime.storage.checksums import fingerprint
from distill.runtime.versions import processor

PART, FILE = "seconds", "seconds.json"
"""Part of the cache with the seconds that steps took, and the file of an entry."""
SAME_ROWS = 4
"""Numbers of rows count as the same if they are nearest to the same of this many numbers between n and 2 n."""


class Remaining:
    """The steps that a run has to make, and what those that it made took."""

    def __init__(self, ctx: Context, steps: Sequence[Step], end: float | None = None) -> None:
        """
        Args:
            steps: in the order in which they are made.
            end: when the budget of the run ends, as `time.monotonic`; None without a budget. With one, the number of
                steps is not known before.
        """
        self.ctx, self.steps, self.end = ctx, list(steps), end
        self.took: dict[Step, float] = {}

    @contextmanager
    def making(self, step: Step) -> Iterator[None]:
        """Say what is done and what is left, and keep the seconds that the block takes to make the step."""
        if not self.ctx.machine.main:
            yield
            return
        ahead = self.steps[self.steps.index(step) :] if self.end is None else [step]
        expected, began = [self._expected(each) for each in ahead], time.monotonic()
        resumed = self.ctx.folder.has_parts(step)

        def now() -> str:
            if self.end is not None:
                return f"step {len(self.took) + 1}, {_minutes(self.end - time.monotonic())} of the budget left"
            first, gone = expected[0], time.monotonic() - began
            first = None if first is None or gone > first else first - gone
            return f"step {len(self.steps) - len(ahead) + 1} of {len(self.steps)}, {time_left([first, *expected[1:]])}"

        self.ctx.machine.log(f"{step.folder}: {now()}")
        with progress.within(now):
            yield
        if (record := self.ctx.folder.record(step)) is not None:
            self.took[step] = record.cost.seconds or 0.0
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


def time_left(seconds: Sequence[float | None]) -> str:
    """The time that steps take, as a phrase. `seconds`: of each; None for a step of which nothing is known."""
    known = [each for each in seconds if each is not None]
    if not known:
        return "time left unknown"
    minutes = _minutes(sum(known))
    return f"about {minutes} left" if len(known) == len(seconds) else f"{minutes} or more left"


def _minutes(seconds: float) -> str:
    minutes = math.ceil(max(seconds, 0.0) / 60)
    return f"{minutes} minute" if minutes == 1 else f"{minutes} minutes"
