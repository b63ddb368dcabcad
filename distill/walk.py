"""Walks the pipeline of a recipe: skips what is finished, goes on with what is not, writes the report."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distill import check, checkpoint, explain
from distill.check.rules import flatten
from distill.config import Config, Export, load_config
from distill.errors import ConfigError
from distill.plan import EMBEDDER, Step, resolve

if TYPE_CHECKING:
    from distill.context import Context

SETTINGS = "config.json"
FREE = ("output", "threads", "device", "push", "push_private")
"""Settings that may differ when a run is resumed: they change no number of it."""


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
    folder = checkpoint.run_folder(recipe, overrides, config.output)
    checkpoint.claim(folder)
    with checkpoint.locked(folder):
        _same_settings(folder, config)
        _sweep(folder)
        ctx = _context(config, recipe, overrides, folder)
        from distill import report
        from distill.results import results
        from distill.stages.prepare import prepare

        ctx.machine.say(f"run folder: {folder}")
        if config.limit.smoke:
            ctx.machine.say("limit=smoke: tiny and random, to see that everything runs. Its numbers mean nothing.")
        pending = _pending(ctx)
        _begin(ctx, pending, prepare)
        repositories = _repositories(ctx)
        for step in ctx.plan.steps:
            if step in pending:
                _step(ctx, step)
            else:
                ctx.machine.say(f"{step.folder}: finished earlier, skipped")
        if ctx.machine.main:
            ctx.folder.finish()
        found = results(ctx)  # on every process: what it asks for may not be loaded yet, and they wait for each other
        if found is not None and ctx.machine.main:
            paths = report.write(found, folder)
            report.show(found, {**paths, **_artifacts(ctx)}, ctx.machine.console)
        _push(ctx, repositories)
        return found


def _begin(ctx: Context, pending: list[Step], prepare: Callable[[Context, list[Step]], None]) -> None:
    """Check all that the pending steps need; only then does the folder belong to these settings."""
    settings = ctx.folder.path / SETTINGS
    if ctx.machine.main and not settings.is_file():
        ctx.folder.forget_corpus()  # it may be of other settings
    prepare(ctx, pending)
    # Before this no process writes, so that all have decided alike on what is to be done.
    ctx.machine.wait()
    # What was refused can be begun again with other settings.
    if ctx.machine.main and not settings.is_file():
        checkpoint.write_json(settings, asdict(ctx.config))
    if ctx.machine.main and pending:
        ctx.folder.begin({step.folder: ctx.fingerprints(step) for step in pending})


def _sweep(folder: Path) -> None:
    """The first process removes what killed runs left half-written."""
    if int(os.environ.get("RANK", "0")) == 0:
        checkpoint.sweep(folder)


def _step(ctx: Context, step: Step) -> None:
    from distill.environment import versions
    from distill.evaluate import memory
    from distill.stages import RUN

    began = time.monotonic()
    if step.kind == "train" or ctx.machine.main:
        with memory.peak(ctx.machine.device.type) as used:
            manifest = RUN[step.kind](ctx, step)
        if ctx.machine.main:
            extra = {"peak_memory_mib": used(), "given": ctx.fingerprints(step), "versions": versions()}
            extra |= {"inputs": ctx.folder.inputs(step)}
            checkpoint.write_json(ctx.folder.of(step) / checkpoint.MANIFEST, manifest | extra)
        ctx.machine.say(f"{step.folder}: {manifest.get('skipped') or f'{time.monotonic() - began:.0f} s'}")
    ctx.machine.wait()


def _pending(ctx: Context) -> list[Step]:
    """Steps to run: those that are not finished, and those made from what has changed or is made again."""
    from distill.context.fingerprints import NAMES

    pending: list[Step] = []
    again: list[Step] = []
    kept: list[Step] = []
    given_changed = False
    for step in ctx.plan.steps:
        manifest, changed = ctx.folder.manifest(step), _changed(ctx, step, pending)
        if "inputs" not in manifest:  # written last
            pending.append(step)
            again += [step] if changed else []  # what a stopped run left there was made from what has changed
            if replaced := [name for name in changed if name in NAMES.values()]:
                ctx.machine.say(f"{step.folder}: begins again, because {', '.join(replaced)} changed")
        elif changed:
            ctx.machine.say(f"{step.folder}: made again, because {', '.join(changed)} changed")
            pending.append(step)
            again.append(step)
        else:
            kept.append(step)
        given_changed |= any(name in NAMES.values() for name in changed)
    _tell_versions(ctx, kept)
    ctx.machine.wait()
    if ctx.machine.main:
        for step in again:
            ctx.folder.forget(step)
        if given_changed:
            ctx.folder.forget_given()
    ctx.machine.wait()
    return pending


def _changed(ctx: Context, step: Step, pending: list[Step]) -> list[str]:
    """What a step was made from that is not what it was: earlier steps, and what the run was given."""
    from distill.context.fingerprints import NAMES

    again = [other.folder for other in step.inputs if other in pending]
    manifest = ctx.folder.manifest(step)
    finished = "inputs" in manifest
    before = manifest["given"] if finished else ctx.folder.begun(step)
    if before is None:
        return again
    given = ctx.fingerprints(step)
    replaced = [NAMES[name] for name in given if before.get(name) != given[name]]
    now = ctx.folder.inputs(step) if finished else {}
    remade = [folder for folder in now if folder not in again and manifest["inputs"].get(folder) != now[folder]]
    return [*sorted(again), *remade, *replaced]


def _tell_versions(ctx: Context, kept: list[Step]) -> None:
    """Say which finished steps other versions of distill, torch or transformers made: they are kept."""
    from distill.environment import versions

    now = versions()
    for package in now:
        before: dict[str, list[str]] = {}
        for step in kept:
            if (other := ctx.folder.manifest(step)["versions"][package]) != now[package]:
                before.setdefault(str(other), []).append(step.folder)
        for version, steps in before.items():
            ctx.machine.say(
                f"{', '.join(steps)}: made with {package} {version}, now {now[package]}; kept (set output=NEW_FOLDER "
                "to make everything again)"
            )


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
    from distill.context import Context
    from distill.context.folder import RunFolder
    from distill.machine import start

    command = f"python -m distill {shlex.join(overrides)}"
    return Context(config, resolve(config), recipe, command, start(config), RunFolder(folder))


def _repositories(ctx: Context) -> dict[str, Path]:
    """Repository on the hub, which is there then, -> folder that goes into it."""
    from distill.export.push import create, exported, repositories

    if ctx.config.push is None:
        return {}
    repos = repositories(ctx.config.push, exported(ctx.plan, list(ctx.tasks)))
    if ctx.machine.main:
        for name, visibility in create(repos, ctx.config.push_private).items():
            ctx.machine.say(f"push: {name} is {visibility}")
    return {repo: ctx.folder.path / folder for repo, folder in repos.items()}


def _push(ctx: Context, repos: dict[str, Path]) -> None:
    from distill.export.push import upload

    if ctx.machine.main:
        for what, address in upload(repos, f"distill {ctx.recipe}, seed {ctx.config.seed}").items():
            ctx.machine.say(f"{what}: {address}")


def _artifacts(ctx: Context) -> dict[str, Path]:
    """What a user deploys -> where it is."""
    paths = {}
    for step in ctx.plan.of(Export):
        model, inside = ("embedder", EMBEDDER) if step.embeds else ("student", "TASK")
        paths[f"deployable {model} ({step.folder}/{inside})"] = ctx.folder.of(step)
    return paths
