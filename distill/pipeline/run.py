"""Runs the pipeline of a recipe: skips finished steps, runs or resumes the others, and writes the report."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from rich.console import Console

from distill.config import Config, Evaluate, Export, load_config, words
from distill.config.plan import EMBEDDER, OF_TEACHER, SHARED_HEADS, Step, resolve
from distill.data.tasks import check_files
from distill.errors import ConfigError, UserError, discreet, printable, refuse
from distill.evaluation.results import Results
from distill.models.families.head import stored_head
from distill.pipeline import pushes, validation
from distill.pipeline.validation import hydra_errors
from distill.pipeline.validation import words as command_line
from distill.pipeline.validation.launch import alone, launch
from distill.pipeline.validation.place import place
from distill.pipeline.validation.refuses import shown
from distill.pipeline.validation.rules import binding, defaults, flatten
from distill.pipeline.validation.unused import unused
from distill.runtime import progress, quoting
from distill.runtime.messages import TEXT, console_for
from distill.runtime.storage import atomic, cache, checksums, disk_errors, run_folder, structs

if TYPE_CHECKING:
    from distill.pipeline.context import Context
    from distill.pipeline.time_left import Remaining

SETTINGS = "config.json"
"""File in the run folder with the settings of the run and, by the name `format`, the number `FORMAT`."""
FORMAT = 4
"""Number of the form of what is in run folders, which is raised when files of another form are written."""


_COMPILED = "TORCHINDUCTOR_CACHE_DIR"
_alone = RLock()
"""Held while a run goes on: the runs of a process share the state of torch, of accelerate and of Hydra."""


def run(*settings: str) -> dict[str, Any] | None:
    """Run a recipe as `python -m distill` does with the same settings: `run("recipe=distilbert", "seed=1")`.

    Returns the content of results.json, or None if the pipeline evaluates nothing. A finished run is not repeated.
    Calls from several threads run one after the other.

    Raises:
        UserError: for every error that the user can correct, a ConfigError for wrong settings. `messages` has one line
            per problem.
    """
    if wrong := [given for given in settings if not isinstance(given, str)]:
        raise ConfigError(
            f"run: got a {type(wrong[0]).__name__}; must be texts such as 'seed=1', one for each setting; write "
            "run(*settings) for a list of them"
        )
    with _alone:
        return _run(settings)


def _run(settings: tuple[str, ...]) -> dict[str, Any] | None:
    named = [word.partition("=")[2] for word in settings if word.startswith("recipe=")]
    recipe = named[-1] if named else None  # as Hydra chooses
    refuse(command_line.problems(settings))
    overrides = words(settings)
    try:
        config = load_config(overrides)
    except Exception as error:
        lines = hydra_errors.messages(error, overrides)
        if lines is None:
            raise
        raise ConfigError(lines) from error
    refuse(validation.settings(config, recipe))
    assert recipe is not None
    try:
        with _unchanged():
            measured = run_pipeline(config, recipe, overrides)
        return None if measured is None else {"schema": measured.schema} | structs.plain(measured)
    except OSError as error:
        if (line := disk_errors.problem(error)) is None:
            raise
        raise UserError(line) from error


@contextmanager
def _unchanged() -> Iterator[None]:
    """Put back what a run sets for its whole process: threads, arithmetic and random numbers of torch, the state of
    accelerate, and messages of transformers."""
    import torch
    from accelerate.state import AcceleratorState, PartialState
    from transformers.utils import logging

    from distill.runtime.machine import arithmetic

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    folder = os.environ.get(_COMPILED)
    states = [(each, dict(each._shared_state)) for each in (AcceleratorState, PartialState)]
    drawn = torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        with arithmetic(torch.get_float32_matmul_precision(), torch.get_num_threads()):
            yield
    finally:
        for kind, before in states:
            kind._shared_state.clear()
            kind._shared_state.update(before)
        torch.set_rng_state(drawn[0])
        torch.cuda.set_rng_state_all(drawn[1])
        logging.set_verbosity(verbosity)
        (logging.enable_progress_bar if bars else logging.disable_progress_bar)()
        if folder is None:
            os.environ.pop(_COMPILED, None)


def run_pipeline(config: Config, recipe: str, overrides: list[str]) -> Results | None:
    """Run the pipeline of a config that `distill.pipeline.validation` has accepted, and write its report.

    Returns the content of results.json, or None if the pipeline evaluates nothing.

    Raises:
        UserError: for every error that the user can correct.
        ConfigError: for a launch, a run folder or settings that do not fit the run.
    """
    began = time.monotonic()
    folder = run_folder.run_folder(recipe, overrides, config.output)
    refuse([*launch(os.environ), *place(config, folder)])
    run_folder.claim(folder)
    with run_folder.locked(folder), cache.using(config.cache.dir, config.cache.max_gib):
        _same_settings(folder, config)
        console = console_for(config.log)
        for line in [*_sweep(folder), cache.note(), unused(config, overrides)]:
            if line and atomic.is_main():  # before the machine is known
                console.print(printable(line), highlight=False, markup=False, soft_wrap=True)
        _check_files(config)
        ctx = _context(config, recipe, overrides, folder, console)
        from distill import report
        from distill.pipeline.collect import tracked
        from distill.pipeline.context.pending import pending_steps
        from distill.pipeline.time_left import Remaining
        from distill.report.variants import Run, folder_name

        ctx.machine.log(f"run folder: {folder}")
        if config.limit.smoke:
            ctx.machine.log(
                "limit=smoke: few rows and steps, and tiny random models in place of downloads, to test that all "
                "runs. The results mean nothing."
            )
        with progress.shown_on(ctx.machine.console if ctx.machine.main else None):
            if config.budget.minutes is None:
                pending = pending_steps(ctx.keys, ctx.plan.steps)
                repositories = _begin(ctx, pending, pending)
                ctx.machine.tracker.start(folder.name, folder, flatten(asdict(config)))
                remaining = Remaining(ctx, pending)
                for line in remaining.plan(ctx.plan.steps) if pending else ():
                    ctx.machine.log(line)
                for step in ctx.plan.steps:
                    _run_pending(ctx, step, pending, remaining)
            else:
                from distill.pipeline.budget import recover, spent

                recover(ctx.folder)
                remaining = Remaining(ctx, [], began + 60 * config.budget.minutes - spent(ctx.folder))
                ctx, repositories = _within_budget(ctx, began, remaining)
            made = ctx.plan
            ctx, measured, paths = _reported(ctx, remaining)
        if ctx.machine.main:
            ctx.folder.forget_given()  # which only an unfinished run needs
        if measured is not None and ctx.machine.main:
            exports = [step for step in ctx.plan.of(Export) if ctx.folder.finished(step)]
            artifacts = _artifacts(exports, folder, shared=ctx.shared)
            pages = {name: path for name, path in paths.items() if not name.startswith("picture")}
            shown_on = console_for(TEXT) if console.quiet else console  # the end of a run is always shown
            report.show(Run(folder_name(folder), measured), {**pages, **artifacts}, shown_on)
            ctx.machine.tracker.results(tracked(measured.models))
        ctx.machine.tracker.end()
        pushes.push(repositories, ctx, made)
        return measured


def _within_budget(ctx: Context, began: float, remaining: Remaining) -> tuple[Context, dict[str, Path]]:
    """Run the steps for which the budget is enough. Returns the context with the plan of these, and the repositories
    of `push`."""
    from distill.pipeline.budget import counted, search_within_budget
    from distill.pipeline.context.pending import pending_steps

    first = [step for step in ctx.plan.steps if not step.target and not isinstance(step.settings, Evaluate | Export)]
    others = [step for step in ctx.plan.steps if step not in first]
    pending = pending_steps(ctx.keys, first)
    for step in others:
        if pending and ctx.machine.main and ctx.folder.started(step):
            ctx.folder.forget(step)
    repositories = _begin(ctx, pending, [*pending, *others])
    ctx.machine.tracker.start(ctx.folder.path.name, ctx.folder.path, flatten(asdict(ctx.config)))
    with counted(ctx.folder, began):
        for step in first:
            _run_pending(ctx, step, pending, remaining)
    runner = functools.partial(_runner, remaining=remaining)
    ctx = ctx.with_plan(search_within_budget(ctx, runner, began))
    last = ctx.plan.of(Evaluate, Export)
    run = runner(ctx, last)
    for step in last:
        run(step)
    return ctx, repositories


def _runner(ctx: Context, steps: Sequence[Step], remaining: Remaining) -> Callable[[Step], None]:
    """Begin steps that were not known when the run began. Returns the function that runs one of them."""
    from distill.pipeline.context.pending import pending_steps

    pending = pending_steps(ctx.keys, steps)
    if ctx.machine.main:
        ctx.folder.begin({step.folder: ctx.keys.without_settings(step) for step in pending}, steps)
    return lambda step: _run_pending(ctx, step, pending, remaining)


def _reported(ctx: Context, remaining: Remaining) -> tuple[Context, Results | None, dict[str, Path]]:
    """Write the report and, if it advises the teacher, export the teacher and write the report again.

    Returns the run, perhaps with that step; the content of results.json, None if nothing was evaluated; and the files.
    """
    from distill import report
    from distill.pipeline.collect import results

    while True:
        measured = results(ctx)  # on every process, because loading data and models synchronizes the processes
        paths = report.write(measured, ctx.folder.path) if measured is not None and ctx.machine.main else {}
        wider = ctx if measured is None else _with_teacher(ctx, measured, remaining)
        if wider is ctx:
            return ctx, measured, paths
        ctx = wider


def _with_teacher(ctx: Context, measured: Results, remaining: Remaining) -> Context:
    """Export the teacher too, if the report advises a form of it that no folder of the run has.

    Returns the run with that step, or the same run without it. An ensemble is not exported, nor is a teacher that reads
    long texts in windows. In float32 of torch, a model is in the folder of its training already.
    """
    from distill.report.decision import decided
    from distill.report.loading import is_exported
    from distill.report.variants import Run, folder_name

    wider = ctx.with_plan(ctx.plan.with_teacher())
    added = wider.plan.steps[len(ctx.plan.steps) :]
    if ctx.config.limit.smoke or len(ctx.given.teachers) > 1 or ctx.config.teacher.window or not added:
        return ctx
    (step,) = added
    advised = decided(Run(folder_name(ctx.folder.path), measured)).chosen
    whole = advised is not None and advised.backend == "torch" and advised.scheme.startswith("fp32")
    if advised is None or advised.role != "teacher" or whole or is_exported(measured, advised):
        if ctx.machine.main and ctx.folder.started(step):
            ctx.folder.forget(step)  # it was advised before something changed
        ctx.machine.wait()
        return ctx
    try:
        _runner(wider, [step], remaining)(step)
    except UserError as error:
        if ctx.machine.accelerator.num_processes > 1:  # the others wait for the step
            raise
        ctx.machine.log(f"{step.folder}: the teacher is not exported: {error}")
        return ctx
    return wider


def _begin(ctx: Context, pending: list[Step], checked: list[Step]) -> dict[str, Path]:
    """Load and check the inputs of the steps `checked`, then record the settings of the run in its folder.

    Returns the repositories of `push` and the folders for them.
    """
    from distill.pipeline.context.keys import NAMES
    from distill.pipeline.validation.preflight import prepare

    settings = ctx.folder.path / SETTINGS
    if ctx.machine.main and not settings.is_file():
        ctx.folder.forget_corpus()  # a refused run with other settings may have encoded it
    # It loads models, which synchronizes the processes.
    keys = {step.folder: ctx.keys.without_settings(step) for step in pending}
    # Each process reads files of its own machine. A program around the run may do other things in each process.
    given = {NAMES[name]: value for key in keys.values() for name, value in key.given.items() if name != "code"}
    packages = "".join({key.packages for key in keys.values()})
    ctx.machine.check_same(given | {"the packages": packages})
    # Recorded before anything is computed from it, so that another try notices what has been replaced since.
    if ctx.machine.main:
        ctx.folder.begin(keys, ctx.plan.steps)
    prepare(ctx, checked)
    repositories = pushes.repositories(ctx)
    # No process writes before all of them have read the folder, so that they agree on the pending steps.
    ctx.machine.wait()
    # Recorded last: after a refusal the user can start again in this folder with other settings.
    if ctx.machine.main and not settings.is_file():
        atomic.write_json(settings, {"format": FORMAT, **asdict(ctx.config)})
    return repositories


def _check_files(config: Config) -> None:
    """Raise the errors in the user's own files before torch is imported, which takes longer than to find them."""
    if any(step for step in resolve(config).steps if not step.on_corpus):
        name = config.teacher.name
        local = name is not None and Path(name).is_dir() and config.teacher.head == "given"
        check_files(config, stored_head(str(name)) if local else None)


def _sweep(folder: Path) -> list[str]:
    """Remove temporary files of killed runs, and damaged files, on the main process only. Returns lines about it.

    Raises:
        ConfigError: if the file with the decisions of a run with a budget is damaged.
    """
    if not atomic.is_main():
        return []
    run_folder.sweep(folder)
    if checksums.changed(folder / run_folder.LADDER):
        raise ConfigError(
            f"{folder / run_folder.LADDER}: got another content than the run wrote; must be unchanged, because it has "
            "what the run measured and decided; set output=NEW_FOLDER"
        )
    return run_folder.mend(folder)


def _run_pending(ctx: Context, step: Step, pending: list[Step], remaining: Remaining) -> None:
    """Run a step, unless it finished earlier."""
    from distill.pipeline.context.pending import still_finished
    from distill.pipeline.run_step import run_step

    if step in pending and not still_finished(ctx.keys, step):
        with remaining.making(step):
            run_step(ctx, step)
    else:
        ctx.machine.log(f"{step.folder}: finished earlier, skipped")


def _same_settings(folder: Path, config: Config) -> None:
    """Raise ConfigError if the run in the folder has other settings, or is of another version's form."""
    file = folder / SETTINGS
    now = binding(config)
    if file.is_file():
        if checksums.changed(file):
            raise ConfigError(
                f"{file}: got another content than the run wrote; must be unchanged, because it has the settings of "
                "the run; remove it if this is the command that began the run, else set output=NEW_FOLDER"
            )
        stored = atomic.read_json(file)
        if (form := stored.pop("format", 1)) != FORMAT:
            raise ConfigError(
                f"output: got {folder}, which another version of distill began (format {form}); must be of format "
                f"{FORMAT}; set output=NEW_FOLDER"
            )
        # Of settings that an older version did not have, the defaults held.
        before = {key: value for key, value in defaults(config).items() if key in now} | binding(stored)
        changed = sorted(k for k in now.keys() | before.keys() if now.get(k) != before.get(k))
        if changed:
            raise ConfigError(
                f"{k}: got {shown(now.get(k))}; must be {shown(before.get(k))} as when {folder} was begun; "
                "set output=NEW_FOLDER"
                for k in changed
            )


def _context(config: Config, recipe: str, overrides: list[str], folder: Path, console: Console) -> Context:
    # These imports are slow, so they are done only for a checked run.
    from distill.pipeline.context import Context
    from distill.pipeline.context.folder import RunFolder
    from distill.runtime.machine import start

    command = quoting.command(["python", "-m", "distill", *map(discreet, overrides)])
    machine = start(config.device, config.precision, config.threads, config.tracker, folder, console)
    refuse(alone(os.environ, machine.accelerator.num_processes))
    machine.check_shared(folder)
    inside = RunFolder(folder)
    inside.check_links()
    return Context(config, resolve(config), recipe, command, machine, inside)


def _artifacts(exports: list[Step], folder: Path, *, shared: bool) -> dict[str, Path]:
    """Label of each artifact to deploy -> its folder in the run folder.

    shared: whether the student of all tasks has one encoder.
    """
    paths = {}
    for step in exports:
        of_tasks = SHARED_HEADS if shared else "TASK"
        model, inside = ("embedder", EMBEDDER) if step.embeds else ("student", of_tasks)
        if step.stage.endswith(OF_TEACHER):
            model, inside = "teacher", "TASK"
        paths[f"deployable {model} ({step.folder}/{inside})"] = folder / step.folder
    return paths
