"""Runs one step: takes its models from the cache, or makes them, and records how."""

from __future__ import annotations

import time

from distill.config.plan import Step
from distill.inference import memory
from distill.pipeline import stages
from distill.pipeline.artefacts import Artefact, Cost, Record, Trained
from distill.pipeline.context import Context
from distill.pipeline.train_steps import cache_key
from distill.runtime.storage import cache
from distill.runtime.versions import versions


def run_step(ctx: Context, step: Step) -> None:
    """Run one step and complete its manifest, or take its models from the cache if an equal step ran before."""
    key, given = cache_key.of_step(ctx, step), ctx.fingerprints(step)

    def waits(end: str) -> None:
        ctx.machine.log(f"{step.folder}: another run is making the same; waiting for it{end}")

    with cache.making("models", key if ctx.machine.main else None, waits):
        if ctx.machine.main and cache.take("models", key, ctx.folder.of(step)):
            ctx.folder.forget_state(step)  # of a training that was stopped, before another run finished the same
            taken = ctx.folder.result(step, Trained)
            assert taken.record is not None
            ctx.folder.complete(step, taken, _record(ctx, step, key, given, taken.record.cost, reused=True))
        ctx.machine.wait()
        record = ctx.folder.record(step)
        if record is not None and record.reused:
            ctx.machine.log(f"{step.folder}: made by an earlier run from the same settings and data, not run again")
        elif step.kind == "train" or ctx.machine.main:
            _make(ctx, step, key, given)
    ctx.machine.wait()


def _make(ctx: Context, step: Step, key: str | None, given: dict[str, str]) -> None:
    """Run the function of a step's kind, complete its manifest, and keep its models for other runs.

    Args:
        key: as of `_record`; `given` likewise.
    """
    began = time.monotonic()
    with memory.peak(ctx.machine.device.type) as used, ctx.machine.working(step.kind == "train"):
        stage = stages.STAGES[step.kind]
        made = stage.run(stage.inputs(ctx, step), step.settings, ctx.runtime)
    if not isinstance(made, Artefact):
        raise TypeError(f"stages.STAGES[{step.kind!r}]: got a {type(made).__name__} from it; must return an Artefact")
    seconds = time.monotonic() - began
    if ctx.machine.main:
        ctx.check_unchanged(given, step)
        cost = Cost(seconds=None if made.skipped else seconds, peak_memory_mib=used())
        ctx.folder.complete(step, made, _record(ctx, step, key, given, cost))
        if not made.skipped:
            cache.keep("models", key, ctx.folder.of(step))
    ctx.machine.log(f"{step.folder}: {made.skipped or f'{seconds:.0f} s'}")


def _record(
    ctx: Context, step: Step, key: str | None, given: dict[str, str], cost: Cost, *, reused: bool = False
) -> Record:
    """How a step was run.

    Args:
        key: hash of everything that its models depend on, by which other runs find them.
        given: fingerprints of the given models and data that it reads.
    """
    return Record(
        inputs=ctx.folder.inputs(step), given=given, versions=versions(), made_from=key, cost=cost, reused=reused
    )
