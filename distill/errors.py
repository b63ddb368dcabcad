"""Errors that the user can correct: one line per problem, printed without a traceback."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterable
from typing import Any


def printable(text: str) -> str:
    """The text with an escape in place of each character that a terminal may act on: names and texts in files come
    from strangers."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str) -> str:
    """As `printable`, for a text of several lines."""
    return "\n".join(map(printable, text.split("\n")))


class UserError(Exception):
    """An error that the user can correct. `messages` contains one line per problem."""

    def __init__(self, messages: str | Iterable[str]) -> None:
        self.messages = [printable(line) for line in ([messages] if isinstance(messages, str) else messages)]
        super().__init__("\n".join(self.messages))


class ConfigError(UserError):
    """A setting is wrong: `<key>: got X; must be Y; do Z`."""


class DataError(UserError):
    """A file is wrong: `<file>, row N: got X; must be Y; do Z`."""


SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]
"""Signals that stop a run: Ctrl-C, a scheduler's, and the one that SLURM can send before the time is over."""


class Stopped(UserError):
    """The user stopped the run. Its state is on disk, and the same command resumes it."""

    def __init__(self, messages: str | Iterable[str], number: int = signal.SIGINT) -> None:
        super().__init__(messages)
        self.number = number
        """The signal."""


class Interrupted(KeyboardInterrupt):
    """One of `SIGNALS`, where nothing is done before the run stops."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def repeated() -> bool:
    """Whether a signal came less than a second after the last one, and is taken for the same: a terminal or scheduler
    sends it to each process of a sweep, and the sweep hands it on."""
    global _last
    now = time.monotonic()
    if now - _last < 1:
        return True
    _last = now
    return False


_last = -math.inf


def interrupt(number: int, frame: Any) -> None:
    """A handler of a signal."""
    if not repeated():
        raise Interrupted(number)


def reason(error: BaseException) -> str:
    """Type and first line of an error, at most 200 characters, for a model that failed in a report."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:200]
