"""Runs one step: takes its models from the cache, or makes them, and records how."""

from __future__ import annotations

import time
from pathlib import Path

from distill.config.plan import Step
from distill.inference import memory
from distill.pipeline import stages
from distill.pipeline.artefacts import Artefact, Cost, Key, Record, Trained
from distill.pipeline.context import Context
from distill.pipeline.train_steps.prepare import forget_training
from distill.runtime.storage import run_folder, store


def run_step(ctx: Context, step: Step) -> None:
    """Run one step and complete its manifest, or take its models from the cache if an equal step ran before."""
    key = ctx.keys.of(step)

    def make(_: Path) -> None:
        ctx.machine.agreed(False)
        _make(ctx, step, key)

    def taken() -> None:
        forget_training(step.folder, ctx.runtime)  # of one that was stopped, before another run finished the same
        earlier = ctx.folder.result(step, Trained)
        assert earlier.record is not None
        ctx.folder.complete(step, earlier, Record(key=key, cost=earlier.record.cost, reused=True))
        said = earlier.skipped or "made by an earlier run from the same settings and data, not run again"
        ctx.machine.log(f"{step.folder}: {said}")
        ctx.machine.agreed(True)

    def waits(end: str) -> None:
        ctx.machine.log(f"{step.folder}: another run is making the same; waiting for it{end}")

    if ctx.machine.main:
        name = None if ctx.folder.mixed(step) else key.name
        store.get_or_make("models", name, make, ctx.folder.of(step), waits, taken)
    # Told by the main process: another host may see its files later.
    elif not ctx.machine.agreed(False) and stages.STAGES[step.kind].everywhere:
        _make(ctx, step, key)
    ctx.machine.wait()
    ctx.machine.see([ctx.folder.of(step) / run_folder.MANIFEST])


def _make(ctx: Context, step: Step, key: Key) -> None:
    """Run the function of a step's kind and complete its manifest."""
    began = time.monotonic()
    stage = stages.STAGES[step.kind]
    with memory.peak(ctx.machine.device.type) as used, ctx.machine.working(stage.everywhere):
        made = stage.run(stage.inputs(ctx, step), step.settings, ctx.runtime)
    if made is None and not ctx.machine.main:
        return
    if not isinstance(made, Artefact):
        raise TypeError(f"stages.STAGES[{step.kind!r}]: got a {type(made).__name__} from it; must return an Artefact")
    seconds = time.monotonic() - began
    if ctx.machine.main:
        ctx.check_unchanged(key.given, step)
        cost = Cost(seconds=None if made.skipped else seconds, peak_memory_mib=used())
        ctx.folder.complete(step, made, Record(key=key, cost=cost))
    ctx.machine.log(f"{step.folder}: {made.skipped or f'{seconds:.0f} s'}")
