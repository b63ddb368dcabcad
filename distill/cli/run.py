"""The command line: compose the config, check it, run it. Only hydra is imported until the config is valid."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import hydra
from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from distill import __version__, config, errors
from distill.cli import commands, help_text
from distill.config import bounds, hydra_hooks, typed
from distill.pipeline import sweep, validation
from distill.pipeline.validation import hydra_errors
from distill.pipeline.validation import words as command_line
from distill.pipeline.validation.hydra import hydra_settings
from distill.pipeline.validation.launch import launch
from distill.runtime import quoting, streams

config.register()

_CONF, _PRIMARY = config.folder("conf").resolve(), "config"
"""Folder and name of the primary config."""
_tracebacks = os.environ.get("HYDRA_FULL_ERROR") == "1"
"""Whether the user asked for tracebacks."""


@contextmanager
def _raising() -> Iterator[None]:
    """Let Hydra raise instead of printing its own message and a stack, and set the variable back after it."""
    before = os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = before


@hydra.main(version_base="1.3", config_path=str(_CONF), config_name=_PRIMARY)
def _job(composed: DictConfig) -> Any:
    own = HydraConfig.get()
    overrides = list(own.overrides.task)
    recipe: Any = own.runtime.choices.get("recipe")
    multirun = own.mode == RunMode.MULTIRUN
    try:
        settings = config.resolved(composed, overrides)
        errors.refuse(validation.settings(settings, recipe))  # also where no recipe is chosen
        if multirun:
            return sweep.run(own.job.num, overrides, settings, recipe, own.sweeper.get("direction"))
        from distill.pipeline.run import run_pipeline

        run_pipeline(settings, recipe, overrides)
    except errors.Stopped as error:
        sys.exit(_print_errors([*error.messages, _stopped()], 128 + error.number))
    except Exception as error:
        if multirun:  # the other jobs go on
            return sweep.failed(own.job.num, overrides, error)
        lines = hydra_errors.messages(error, overrides)
        if _tracebacks or lines is None:
            raise
        sys.exit(_print_errors(lines, 2))


@contextmanager
def _checked() -> Iterator[None]:
    """Check `hydra.*` of every config that Hydra composes in this process, jobs of a sweep included, before it is used.

    Hydra calls the functions that a config names there before `_job` starts.
    """

    def checked(compose: Any, loader: ConfigLoader, config_name: str | None, *args: Any, **kwargs: Any) -> DictConfig:
        errors.refuse(_another_primary(loader, config_name))
        with bounds.composing():
            composed = compose(loader, config_name, *args, **kwargs)
        errors.refuse(hydra_settings(composed.hydra))
        bounds.check_expanded(composed)
        return composed

    with hydra_hooks.hooked(hydra_hooks.COMPOSES, checked), bounds.guarded(config.Config):
        yield


def _another_primary(loader: ConfigLoader, name: str | None) -> Iterator[str]:
    """Errors for a primary config other than distill's, which can make Hydra import a package while it is composed.

    It can do so by `hydra.searchpath`, which Hydra takes only from the primary config and from the command line.
    """
    parts = loader.get_search_path().get_path()
    path = next((str(part.path).removeprefix("file://") for part in parts if part.provider == "main"), None)
    for option, got, required in (("path", path, str(_CONF)), ("name", name, _PRIMARY)):
        if got != required:
            yield f"--config-{option}: got {got}; must be {required}; leave it out and use --config-dir FOLDER"


def _print_errors(lines: list[str], code: int) -> int:
    """Print the lines to standard error. Returns the exit code `code`."""
    sys.stderr.write("\n".join(lines) + "\n")
    return code


def _stopped() -> str:
    """The command by which a run that was stopped goes on; what launched several processes has a command of its own."""
    if os.environ.get("WORLD_SIZE", "1") != "1":
        return "stopped; to go on, run the same command again"
    return f"stopped; to go on, run: {quoting.command(['python', '-m', 'distill', *_typed])}"


def _leave_processes() -> None:
    """End the group of processes, if there is one: its threads may abort a process that exits while they run."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _usage() -> int:
    print(help_text.text(commands.program()), end="")
    return 0


def _version() -> int:
    print(f"distill {__version__}")
    return 0


_typed = sys.argv[1:]
"""The words of the command line before `main` wrote them in Hydra's grammar."""


def main() -> None:
    """Run the command line. Exit code 2 after errors that the user can correct, 1 after others; 130 after Ctrl-C, 143
    after SIGTERM, and 128 + its number after SIGHUP and SIGUSR1."""
    if {"-h", "--help", "--version"} & {*sys.argv[1:]}:
        if code := streams.printed(_version if "--version" in sys.argv else _usage):
            sys.exit(code)
        return
    streams.steady()
    if problems := list(launch(os.environ, sweep=bool({"-m", "--multirun"} & set(sys.argv)))):
        sys.exit(_print_errors(problems, 2))
    errors.listen()
    _typed[:] = sys.argv[1:]
    if problems := list(command_line.problems(_typed)):
        sys.exit(_print_errors([errors.printable(errors.discreet(line)) for line in problems], 2))
    sys.argv[1:] = typed.options_last(config.words(_typed))
    failed: list[sweep.Failure] = []
    try:
        with _raising(), _checked(), sweep.failures(sys.argv) as failed:
            _job()
        _leave_processes()
    except KeyboardInterrupt as error:
        code = 128 + getattr(error, "number", signal.SIGINT)
        sys.exit(_print_errors([_stopped()], code))
    except Exception as error:
        lines = hydra_errors.messages(error, sys.argv[1:]) or sweep.ended(error, failed)
        if _tracebacks or lines is None:
            raise
        sys.exit(_print_errors(lines, min((failure.code for failure in failed), default=2)))
    finally:  # also of a sweep that was stopped
        if failed:
            shown = [each.traceback for each in failed if each.traceback and (_tracebacks or each.code != 2)]
            _print_errors([*map(errors.printable_lines, shown), *map(str, failed)], 0)
    if failed:
        sys.exit(min(failure.code for failure in failed))
