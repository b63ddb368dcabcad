"""Errors that the user can correct: one line per problem, printed without a traceback."""

from __future__ import annotations

from collections.abc import Iterable


class UserError(Exception):
    """An error that the user can correct. `messages` contains one line per problem."""

    def __init__(self, messages: str | Iterable[str]) -> None:
        self.messages = [messages] if isinstance(messages, str) else list(messages)
        super().__init__("\n".join(self.messages))


class ConfigError(UserError):
    """A setting is wrong: `<key>: got X; must be Y; do Z`."""


class DataError(UserError):
    """A file is wrong: `<file>, row N: got X; must be Y; do Z`."""


class Stopped(UserError):
    """The user stopped the run. Its state is on disk, and the same command resumes it."""


def reason(error: BaseException) -> str:
    """Type and first line of an error, at most 200 characters, for a model that failed in a report."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:200]
