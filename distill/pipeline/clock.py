"""The seconds that a part of a run takes, which are on disk while it goes on: a run that is killed writes nothing.

Checkpoints are written by trainings alone, as often as a setting says. So a file of its own has the seconds, in every
stage, and a killed run loses at most those since it was last written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from distill.errors import UserError
from distill.runtime.repeated import repeated
from distill.runtime.storage import atomic

TICK = 15.0
"""Seconds between two writes."""


@contextmanager
def kept(file: Path, label: str, seconds: Callable[[], float]) -> Iterator[None]:
    """Write the seconds of a label to a file, at once and every `TICK` seconds until the end of the block. The file
    stays: who counts the seconds elsewhere removes it."""

    def write() -> None:
        with suppress(OSError, UserError):  # of a disk that is full; what the block itself writes ends the run
            atomic.write_json(file, {label: seconds()})

    write()
    with repeated(write, TICK):
        yield


def found(file: Path) -> dict[str, float]:
    """Label -> its seconds in a file that a killed run left; empty without one, and if it is damaged."""
    try:
        stored = atomic.read_json(file) if file.is_file() else {}  # a pipe would be waited for
    except (OSError, ValueError):
        return {}
    if not isinstance(stored, dict):
        return {}
    numbers = {label: value for label, value in stored.items() if isinstance(value, int | float)}
    return {label: float(value) for label, value in numbers.items() if 0 <= value < math.inf}
