"""Walks the pipeline of a recipe: skips what is finished, goes on with what is not, writes the report."""

from __future__ import annotations

import fcntl
import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from distill import checkpoint
from distill.check import flatten
from distill.config import Config, ConfigError, run_folder

FREE = ("output", "threads", "device")
"""Settings that may differ when a run is gone on with: they say where and how fast, not what."""


def run(config: Config, recipe: str, overrides: list[str]) -> dict[str, Any] | None:
    """Run a recipe to its report. Returns the results (None if the pipeline evaluates nothing).

    Raises:
        UserError: for whatever the user can mend.
    """
    folder = run_folder(recipe, overrides, config.output)
    with _locked(folder):
        _same_settings(folder, config)
        ctx = _context(config, recipe, overrides, folder)
        from distill import report
        from distill.stages import RUN
        from distill.stages.results import results

        ctx.say(f"run folder: {folder}")
        if config.limit.smoke:
            ctx.say("limit=smoke: tiny and random, to see that everything runs. Its numbers mean nothing.")
        ctx.prepare([n for n in config.pipeline if not checkpoint.finished(folder / n)])
        for name in config.pipeline:
            if checkpoint.finished(folder / name):
                ctx.say(f"{name}: finished earlier, skipped")
                continue
            settings, began = config.stages[name], time.monotonic()
            if settings.kind == "train" or ctx.accelerator.is_main_process:
                manifest = RUN[settings.kind](ctx, name, settings)
                told = manifest.get("skipped") or f"{time.monotonic() - began:.0f} s"
                ctx.say(f"{name}: {told}")
            ctx.accelerator.wait_for_everyone()
        found = results(ctx) if ctx.accelerator.is_main_process else None
        if found is not None:
            paths = report.write(found, folder)
            report.show(found, {**paths, **_artifacts(config, folder)}, ctx.console)
        return found


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
        yield


def _same_settings(folder: Path, config: Config) -> None:
    """Keep the settings of a new run; refuse to go on with another run's."""
    file, settings = folder / "config.json", asdict(config)
    now = {k: v for k, v in flatten(settings).items() if k not in FREE}
    if file.is_file():
        before = {k: v for k, v in flatten(checkpoint.read_json(file)).items() if k not in FREE}
        changed = sorted(k for k in now.keys() | before.keys() if now.get(k) != before.get(k))
        if changed:
            raise ConfigError(
                f"{k}: got {now.get(k)}; must be {before.get(k)} as when {folder} was begun; set output=NEW_FOLDER"
                for k in changed
            )
    elif int(os.environ.get("RANK", "0")) == 0:
        checkpoint.write_json(file, settings)


def _context(config: Config, recipe: str, overrides: list[str], folder: Path) -> Any:
    # Slow imports, done only when there is something to run.
    import datetime

    import torch
    from accelerate import Accelerator
    from accelerate.utils import InitProcessGroupKwargs
    from transformers.utils import logging

    from distill.stages.context import Context, cores, detect_precision

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    world = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    threads = config.threads or max(1, cores() // world)
    torch.set_num_threads(threads)
    device = torch.device("cuda" if config.device != "cpu" and torch.cuda.is_available() else "cpu")
    if config.device == "cuda" and device.type != "cuda":
        raise ConfigError("device: got cuda; must be a device that is there; set device=cpu")
    precision = detect_precision(config.precision, device)
    # Stages that only the first process runs may take hours; the others wait for it.
    patience = InitProcessGroupKwargs(timeout=datetime.timedelta(days=7))
    accelerator = Accelerator(
        cpu=device.type == "cpu", mixed_precision="bf16" if precision == "bf16" else "no", kwargs_handlers=[patience]
    )
    # Real float32 on most hardware, by its fastest path; see docs of torch.set_float32_matmul_precision.
    torch.set_float32_matmul_precision("medium" if device.type == "cpu" else "high")
    console = Console(width=None if sys.stdout.isatty() else 120)
    ctx = Context(
        config, recipe, f"python -m distill {shlex.join(overrides)}", folder, accelerator, console, precision, threads
    )
    ctx.say(
        f"{accelerator.num_processes} process(es) on {accelerator.device}, {threads} threads, training in {precision}"
    )
    return ctx


def _artifacts(config: Config, folder: Path) -> dict[str, Path]:
    exports = [name for name in config.pipeline if config.stages[name].kind == "export"]
    return {f"deployable student ({name}/TASK)": folder / name for name in exports}
