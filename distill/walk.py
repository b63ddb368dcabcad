"""Walks the pipeline of a recipe: skips what is finished, goes on with what is not, writes the report."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from distill import check, checkpoint, explain
from distill.check.rules import flatten
from distill.config import Config, load_config, run_folder
from distill.errors import ConfigError
from distill.plan import EMBEDDER, embeds, references, unrolled

if TYPE_CHECKING:
    from distill.stages.context import Context

SETTINGS = "config.json"
LEFT = (".state", ".targets", ".sensitivity")
"""Endings of what a stage keeps beside its folder."""
FREE = ("output", "threads", "device", "push")
"""Settings that may differ when a run is gone on with: they say where, where to and how fast, not what."""


def run(*settings: str) -> dict[str, Any] | None:
    """What `python -m distill` does with the same settings: `run("recipe=distilbert", "seed=1")`.

    Returns the content of results.json, or None if the pipeline evaluates nothing. A finished run is not made again.

    Raises:
        UserError: for whatever the user can mend; its `messages` are one line a problem.
    """
    recipe = next((word.partition("=")[2] for word in settings if word.startswith("recipe=")), None)
    try:
        config = load_config(list(settings))
    except Exception as error:
        lines = explain.messages(error, list(settings))
        if lines is None:
            raise
        raise ConfigError(lines) from error
    if wrong := check.settings(config, recipe):
        raise ConfigError(wrong)
    assert recipe is not None
    return walk(config, recipe, list(settings))


def walk(config: Config, recipe: str, overrides: list[str]) -> dict[str, Any] | None:
    """Run a recipe whose settings are checked to its report. Returns the results (None if it evaluates nothing).

    Raises:
        UserError: for whatever the user can mend.
    """
    folder = run_folder(recipe, overrides, config.output)
    with _locked(folder):
        _same_settings(folder, config)
        given, config = config, unrolled(config)
        ctx = _context(config, recipe, overrides, folder)
        from distill import report
        from distill.stages.context import CORPUS, TARGETS
        from distill.stages.prepare import prepare
        from distill.stages.results import results

        ctx.say(f"run folder: {folder}")
        if config.limit.smoke:
            ctx.say("limit=smoke: tiny and random, to see that everything runs. Its numbers mean nothing.")
        pending = _pending(ctx)
        if ctx.accelerator.is_main_process and not (folder / SETTINGS).is_file():
            shutil.rmtree(folder / CORPUS, ignore_errors=True)  # it may be of other settings
        prepare(ctx, pending)
        repos = _repositories(ctx)
        # Before this no process writes, so that all have decided alike on what is to be done.
        ctx.accelerator.wait_for_everyone()
        # Only now does the folder belong to these settings: what was refused can be begun again with others.
        if ctx.accelerator.is_main_process and not (folder / SETTINGS).is_file():
            checkpoint.write_json(folder / SETTINGS, asdict(given))
        for name in config.pipeline:
            if name in pending:
                _stage(ctx, name)
            else:
                ctx.say(f"{name}: finished earlier, skipped")
        if ctx.accelerator.is_main_process:
            for left in (folder / CORPUS, *folder.rglob(f"*{TARGETS}")):
                shutil.rmtree(left, ignore_errors=True)
        found = results(ctx)  # on every process: what it asks for may not be loaded yet, and they wait for each other
        if found is not None and ctx.accelerator.is_main_process:
            paths = report.write(found, folder)
            report.show(found, {**paths, **_artifacts(config, folder)}, ctx.console)
        _push(ctx, repos)
        return found


def _stage(ctx: Context, name: str) -> None:
    from distill.evaluate import memory
    from distill.stages import RUN

    settings, began = ctx.config.stages[name], time.monotonic()
    if settings.kind == "train" or ctx.accelerator.is_main_process:
        with memory.peak(ctx.accelerator.device.type) as used:
            manifest = RUN[settings.kind](ctx, name, settings)
        if ctx.accelerator.is_main_process:
            extra = {"inputs": ctx.inputs(settings), "peak_memory_mib": used()}
            checkpoint.write_json(ctx.folder / name / checkpoint.MANIFEST, manifest | extra)
        ctx.say(f"{name}: {manifest.get('skipped') or f'{time.monotonic() - began:.0f} s'}")
    ctx.accelerator.wait_for_everyone()


def _pending(ctx: Context) -> list[str]:
    """Stages to run: those that are not finished, and those made from a stage that is made again."""
    pending: list[str] = []
    again: list[str] = []
    for name in ctx.config.pipeline:
        folder, stage = ctx.folder / name, ctx.config.stages[name]
        manifest = checkpoint.read_json(folder / checkpoint.MANIFEST) if checkpoint.finished(folder) else {}
        made_from = references(ctx.config, stage)
        changed = sorted({*made_from, *(other.partition("/")[0] for other in made_from)} & set(pending))
        if "inputs" not in manifest:  # written last
            pending.append(name)
            again += [name] if changed else []  # what a stopped run left there was made from what is made again
            continue
        if changed or manifest["inputs"] != ctx.inputs(stage):
            ctx.say(f"{name}: made again, because {', '.join(changed) or 'what it was made from'} has changed")
            pending.append(name)
            again.append(name)
    ctx.accelerator.wait_for_everyone()
    if ctx.accelerator.is_main_process:
        for left in (ctx.folder / f"{name}{end}" for name in again for end in ("", *LEFT)):
            shutil.rmtree(left, ignore_errors=True)
    ctx.accelerator.wait_for_everyone()
    return pending


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One run in a folder at a time; the processes of one run share it through the first of them."""
    folder.mkdir(parents=True, exist_ok=True)
    if int(os.environ.get("RANK", "0")) != 0:
        yield
        return
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"output: got {folder}; must be used by one run at a time; wait for the other one, or set output=FOLDER"
            ) from error
        for left in folder.rglob(".*.tmp"):  # of a run that was killed
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        yield


def _same_settings(folder: Path, config: Config) -> None:
    """Refuse to go on with another run's folder."""
    file = folder / SETTINGS
    now = {k: v for k, v in flatten(asdict(config)).items() if k not in FREE}
    if file.is_file():
        before = {k: v for k, v in flatten(checkpoint.read_json(file)).items() if k not in FREE}
        changed = sorted(k for k in now.keys() | before.keys() if now.get(k) != before.get(k))
        if changed:
            raise ConfigError(
                f"{k}: got {now.get(k)}; must be {before.get(k)} as when {folder} was begun; set output=NEW_FOLDER"
                for k in changed
            )


def _context(config: Config, recipe: str, overrides: list[str], folder: Path) -> Context:
    # Slow imports, done only when there is something to run.
    import datetime
    from logging import ERROR, getLogger

    import torch
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState
    from accelerate.utils import InitProcessGroupKwargs
    from transformers.utils import logging

    from distill.evaluate.engines import fast_path_is_float32
    from distill.stages.context import Context, cores, detect_precision

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    # Where torchao is installed transformers imports it, and it tells of GPUs that are not there.
    for noisy in ("torchao", "torch.utils._pytree"):
        getLogger(noisy).setLevel(ERROR)
    world = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    threads = config.threads or max(1, cores() // world)
    torch.set_num_threads(threads)
    device = torch.device("cuda" if config.device != "cpu" and torch.cuda.is_available() else "cpu")
    if config.device == "cuda" and device.type != "cuda":
        raise ConfigError("device: got cuda; must be a device that is there; set device=cpu")
    precision = detect_precision(config.precision, device)
    # Stages that only the first process runs may take hours; the others wait for it.
    patience = InitProcessGroupKwargs(timeout=datetime.timedelta(days=7))
    if world == 1:
        AcceleratorState._reset_state(reset_partial_state=True)  # the runs of a sweep share a process
    accelerator = Accelerator(
        cpu=device.type == "cpu", mixed_precision="bf16" if precision == "bf16" else "no", kwargs_handlers=[patience]
    )
    fast = fast_path_is_float32(device.type)
    torch.set_float32_matmul_precision("medium" if fast else "highest")
    console = Console(width=None if sys.stdout.isatty() else 120)
    command = f"python -m distill {shlex.join(overrides)}"
    ctx = Context(config, recipe, command, folder, accelerator, console, precision, threads, fast)
    ctx.say(
        f"{accelerator.num_processes} process(es) on {accelerator.device}, {threads} threads, training in {precision}"
    )
    return ctx


def _repositories(ctx: Context) -> dict[str, Path]:
    """Where each folder that is exported goes on the hub, which has a place for it then."""
    from distill.export.push import create, exported, repositories

    if ctx.config.push is None:
        return {}
    repos = repositories(ctx.config.push, exported(ctx.config, list(ctx.tasks[0])))
    if ctx.accelerator.is_main_process:
        create(repos)
    return {repo: ctx.folder / folder for repo, folder in repos.items()}


def _push(ctx: Context, repos: dict[str, Path]) -> None:
    from distill.export.push import upload

    if ctx.accelerator.is_main_process:
        for what, address in upload(repos, f"distill {ctx.recipe}, seed {ctx.config.seed}").items():
            ctx.say(f"{what}: {address}")


def _artifacts(config: Config, folder: Path) -> dict[str, Path]:
    exports = [name for name in config.pipeline if config.stages[name].kind == "export"]
    made = {name: "embedder" if embeds(config, name) else "student" for name in exports}
    inside = {"embedder": EMBEDDER, "student": "TASK"}
    return {f"deployable {what} ({name}/{inside[what]})": folder / name for name, what in made.items()}
