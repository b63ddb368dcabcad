"""What the jobs of a sweep leave behind: the errors of those that failed, and the numbers that Optuna optimizes.

A launcher may run jobs in other processes, or on other machines that share a file system.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from distill import checkpoint
from distill.errors import UserError

_FOLDER = "DISTILL_FAILED_JOBS"
"""Environment variable with the folder of failed jobs, which launchers hand on to the processes of jobs."""


@dataclass(frozen=True)
class Failure:
    """A job that failed."""

    job: int
    overrides: list[str]
    """Its settings, those of the whole sweep included."""
    lines: list[str]
    """Its errors."""
    code: int
    """Exit code: 2 after errors that the user can correct, else 1."""
    traceback: str
    """Empty after errors that the user can correct."""

    def __str__(self) -> str:
        return "\n".join(f"job {self.job} ({' '.join(self.overrides)}): {line}" for line in self.lines)


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
            failure = checkpoint.read_json(file)
            own = [word for word in failure["overrides"] if word not in arguments]
            failed.append(Failure(**failure | {"overrides": own}))
            file.unlink()
        with suppress(OSError):  # there is none, or a job that was killed left a temporary file in it
            folder.rmdir()


def failed(failure: Failure) -> None:
    """Leave a failure to the process that began the sweep."""
    checkpoint.write_json(Path(os.environ[_FOLDER]) / f"{failure.job}.json", asdict(failure))


def objectives(results: dict[str, Any] | None, direction: str | Sequence[str] | None) -> float | list[float] | None:
    """What Optuna maximizes: the retained % of the fastest student on the development rows, or, if the student has no
    score on them, on the reported ones. With two directions also its speedup. None for other sweepers (no direction).

    UserError if no student was scored.
    """
    from distill.report import headline

    if direction is None:
        return None
    students = [headline.chosen(results, target) for target in headline.targets(results)] if results else []
    fastest = max(filter(None, students), key=lambda student: headline.speedup(student) or 0.0, default=None)
    if fastest is None:
        raise UserError("pipeline: got no student with a score; must end with evaluate for Optuna; add evaluate")
    ways = fastest["retained"]
    retained: float = ways["macro_without_wnli"] if ways.get("development") is None else ways["development"]
    return retained if isinstance(direction, str) else [retained, headline.speedup(fastest) or 0.0]
