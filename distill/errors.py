"""What the user can mend: one line a problem, and no traceback."""

from __future__ import annotations

from collections.abc import Iterable


class UserError(Exception):
    """Something the user can mend. `messages` holds one line for each problem."""

    def __init__(self, messages: str | Iterable[str]) -> None:
        self.messages = [messages] if isinstance(messages, str) else list(messages)
        super().__init__("\n".join(self.messages))


class ConfigError(UserError):
    """A setting is wrong: `<key>: got X; must be Y; do Z`."""


class DataError(UserError):
    """A file is wrong: `<file>, row N: got X; must be Y; do Z`."""


class Stopped(UserError):
    """The user stopped the run; what was done is on disk."""


def reason(error: BaseException) -> str:
    """One line for a row of a report that failed."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:200]
