"""Runs the jobs of a sweep, each in a process of its own, and collects their errors and the numbers that Optuna
optimizes.

A launcher may start jobs in several processes, or on other machines that share a file system.
"""

from __future__ import annotations

import multiprocessing
import os
import secrets
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING

from distill import errors
from distill.config import Config
from distill.errors import UserError, discreet, printable
from distill.pipeline.validation import hydra_errors
from distill.runtime import gpus, quoting, streams
from distill.runtime.storage import atomic

if TYPE_CHECKING:
    from distill.evaluation.results import Results

GRACE = 30.0
"""Seconds in which the process of a job may write a checkpoint before it is killed."""
_FOLDER = "DISTILL_FAILED_JOBS"
"""Environment variable with the folder of failed jobs, which launchers hand on to the processes of jobs."""


@dataclass(frozen=True)
class Failure:
    """A job that failed."""

    job: int
    overrides: list[str]
    """Its settings, including the settings of the whole sweep."""
    lines: list[str]
    """Its errors."""
    code: int
    """Exit code: 2 after errors that the user can correct, else 1."""
    traceback: str
    """Empty if its process was ended."""

    def __str__(self) -> str:
        settings = discreet(quoting.command(self.overrides))
        return "\n".join(printable(f"job {self.job} ({settings}): {line}") for line in self.lines)


@contextmanager
def failures(arguments: Sequence[str]) -> Iterator[list[Failure]]:
    """A list that holds the failures of jobs when the block has ended, without their settings in `arguments`."""
    folder = Path("outputs", ".sweep", f"failed-{secrets.token_hex(4)}").absolute()
    os.environ[_FOLDER] = str(folder)
    failed: list[Failure] = []
    try:
        yield failed
    finally:
        del os.environ[_FOLDER]
        for file in sorted(folder.glob("*.json"), key=lambda file: int(file.stem)):
            failure = atomic.read_json(file)
            own = [word for word in failure["overrides"] if word not in arguments]
            failed.append(Failure(**failure | {"overrides": own}))
            file.unlink()
        with suppress(OSError):  # the folder is missing, or a killed job left a temporary file in it
            folder.rmdir()


def ended(error: Exception, failed: Sequence[Failure]) -> list[str] | None:
    """A line on an error that ended a sweep with failed jobs, such as Optuna's where none has a score; None without
    such jobs."""
    line = f"the sweep ended ({errors.reason(error)}); these of its runs failed:"
    return [printable(discreet(line))] if failed else None


def failed(job: int, overrides: list[str], error: Exception) -> None:
    """Leave the error of a job to the process that began the sweep."""
    lines = hydra_errors.messages(error, overrides)
    trace = "".join(traceback.format_exception(error))
    described = lines or [f"{type(error).__name__}: {error}; the traceback is above"]
    _leave(Failure(job, overrides, described, 2 if lines else 1, trace))


def _leave(failure: Failure) -> None:
    atomic.write_json(Path(os.environ[_FOLDER]) / f"{failure.job}.json", asdict(failure))


def run(
    job: int, overrides: list[str], settings: Config, recipe: str, direction: str | Sequence[str] | None
) -> float | list[float] | None:
    """Run a job of a sweep in a new process, so that one that crashes or is killed ends no other job. Of several GPUs
    it sees one.

    Signals that stop a sweep are handed on to that process, and `KeyboardInterrupt` is raised when it has ended.

    Args:
        job: its number.
        overrides: its settings, as words of the command line.
        settings: the same, composed and checked.
        direction: of Optuna, see `objectives`.

    Returns:
        the objectives; None also for a job that failed, which `failures` then lists.
    """
    # Not by fork: libraries that were used before, and their threads, need not work in a forked process.
    context = multiprocessing.get_context("spawn")
    answer, theirs = context.Pipe(duplex=False)
    orders, stop = context.Pipe(duplex=False)
    process = context.Process(target=_alone, args=(job, overrides, settings, recipe, direction, theirs, orders))
    stopped: KeyboardInterrupt | None = None
    taken = ExitStack()
    try:
        gpu = taken.enter_context(gpus.one_of([] if settings.device == "cpu" else gpus.visible()))
        with _known_start_method(), gpus.shown(gpu):
            process.start()
        theirs.close()
        orders.close()
        ended = False
        while not ended:
            try:
                ended = bool(wait([process.sentinel]))
            except KeyboardInterrupt as error:
                stopped = error
                with suppress(OSError):  # it has just ended
                    stop.send(getattr(error, "number", signal.SIGINT))
    finally:
        if process.pid is not None:
            _end(process)
        taken.close()
    if stopped is not None:
        raise stopped
    with suppress(EOFError):
        if answer.poll():
            objective: float | list[float] | None = answer.recv()
            return objective
    if not (Path(os.environ[_FOLDER]) / f"{job}.json").is_file():
        _leave(Failure(job, overrides, [_ending(process.exitcode or 0)], 1, ""))
    return None


@contextmanager
def _known_start_method() -> Iterator[None]:
    """Within the context, this process starts others by a method that Python has. A new process takes over the name of
    its parent's method, and does not know joblib's, which a worker of joblib has."""
    before = multiprocessing.get_start_method()
    if before not in (known := multiprocessing.get_all_start_methods()):
        multiprocessing.set_start_method(known[0], force=True)
    try:
        yield
    finally:
        multiprocessing.set_start_method(before, force=True)


def _end(process: SpawnProcess) -> None:
    """Wait for a process, and end it if it still runs, because a launcher ended the job by an exception of its own."""
    if process.is_alive():
        process.terminate()
        process.join(GRACE)
        process.kill()
    process.join()


def _alone(
    job: int,
    overrides: list[str],
    settings: Config,
    recipe: str,
    direction: str | Sequence[str] | None,
    answer: Connection,
    orders: Connection,
) -> None:
    """Run a job in its process."""
    streams.steady()
    errors.listen()
    threading.Thread(target=_obey, args=(orders,), daemon=True).start()
    try:
        from distill.pipeline.run import run_pipeline

        answer.send(objectives(run_pipeline(settings, recipe, overrides), direction))
    except errors.Stopped as error:
        sys.stderr.write("\n".join(error.messages) + "\n")
        sys.exit(128 + error.number)
    except KeyboardInterrupt as error:
        sys.exit(128 + getattr(error, "number", signal.SIGINT))
    except Exception as error:
        failed(job, overrides, error)


def _obey(orders: Connection) -> None:
    """Send this process each signal that the sweep got, unless it has got it itself: a terminal or a scheduler may send
    a signal to all processes. End it as soon as the sweep is killed; else it would go on, and lock its run folder."""
    parent, asked = multiprocessing.parent_process(), 0
    assert parent is not None
    with suppress(EOFError):
        while parent.sentinel not in wait([parent.sentinel, orders]):
            number, asked = orders.recv(), asked + 1
            if errors.received < asked:
                signal.raise_signal(number) if os.name == "nt" else os.kill(os.getpid(), number)
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


def _ending(code: int) -> str:
    """One line on a process that ended with an exit code, or by a signal, whose number is then negative."""
    action = "run the same command again, which keeps what is finished"
    if code >= 0:
        return f"process: got exit code {code}; must finish the run first; see the output above, then {action}"
    name = signal.Signals(-code).name if -code in {*signal.Signals} else f"signal {-code}"
    memory = ", by which an operating system ends a process when memory runs out" if name == "SIGKILL" else ""
    return f"process: got {name}{memory}; must end by itself; {action}"


def objectives(results: Results | None, direction: str | Sequence[str] | None) -> float | list[float] | None:
    """The numbers that Optuna maximizes: the macro score of the fastest student on the development rows or, without one
    on these, on the reported rows. With two directions also its speedup. None for other sweepers (no direction).

    It is the student's own score: each run may have another teacher, of which a worse one would make a share higher.

    Raises UserError if no student was scored.
    """
    from distill.evaluation.results import known
    from distill.report import model_rows

    if direction is None:
        return None
    students = [model_rows.chosen(results, target) for target in model_rows.targets(results)] if results else []
    fastest = model_rows.fastest(results, [*filter(None, students)]) if results else None
    if results is None or fastest is None:
        raise UserError("pipeline: got no student with a score; must end with evaluate for Optuna; add evaluate")
    development = known(fastest.development_macro)
    if development is None:
        own, outside = model_rows.task_scores(fastest.scores or {}), model_rows.outside(results)
        reported = [score for task, score in own.items() if task not in outside]
        development = sum(reported) / max(1, len(reported))
    return development if isinstance(direction, str) else [development, model_rows.speedup(fastest) or 0.0]
