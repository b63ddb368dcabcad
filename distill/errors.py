"""Errors that the user can correct: one line per problem, printed without a traceback."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


def printable(text: str) -> str:
    """The text with an escape in place of each character that a terminal may act on: names and texts in files come
    from strangers."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


_INVISIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, separators of lines, and those that turn the direction of the text around them."""


def visible(text: str) -> str:
    """The text with an escape in place of each character that could change how the text beside it is shown on a page.

    Unlike in `printable`, the marks inside of words stay that some scripts and emoji need.
    """
    return _INVISIBLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def printable_lines(text: str) -> str:
    """As `printable`, for a text of several lines."""
    return "\n".join(map(printable, text.split("\n")))


_USER = re.compile(r"""(?<!abfs)(?<!abfss)(?<!wasb)(?<!wasbs)://[^/\s'"]{0,1000}@""")
"""User and password; in Azure's addresses the name of a container stands there."""
_QUERY = re.compile(
    r"""(://(?:(?!://)[^\s?'"]){0,4000}\?)(?=[\w.~%-]+=)(?:(?!,\w[\w+.-]*://)(?![,;:.)\]]+(?:\s|$))[^\s'"])*"""
)
"""What follows the `?` of an address, such as a signature, up to the next address or the end of the sentence. A `?`
without a name and `=` may be part of a pattern of file names."""


def discreet(text: str) -> str:
    """The text with `...` in place of what may be a secret in an address: user and password, and the query."""
    return _QUERY.sub(r"\1...", _USER.sub("://...@", text))


@dataclass(frozen=True)
class Problem:
    """Something that the user can correct. As a text it is one line: `KEY: got GOT; must MUST; DO`."""

    key: str
    """The setting, or the place in a file."""
    got: object
    must: str
    """What holds for an allowed value, e.g. `be > 0`."""
    do: str
    """What the user can do."""

    def __str__(self) -> str:
        return f"{self.key}: got {self.got}; must {self.must}; {self.do}"

    def __hash__(self) -> int:
        return hash(str(self))  # what it got may be a list


Line = str | Problem
"""One problem. Problems that are not about one value are plain lines."""


class UserError(Exception):
    """An error that the user can correct. `messages` contains one line per problem."""

    def __init__(self, messages: Line | Iterable[Line]) -> None:
        lines = [messages] if isinstance(messages, str | Problem) else messages
        self.messages = [printable(discreet(str(line))) for line in lines]
        super().__init__("\n".join(self.messages))


@contextmanager
def reworded(change: Callable[[str], str], kind: type[UserError] = UserError) -> Iterator[None]:
    """Within the block, or in a function that it decorates, errors of a kind get each message as `change` returns it:
    what a setting or an argument is called depends on what the user called."""
    try:
        yield
    except kind as error:
        raise type(error)(map(change, error.messages)) from error


class ConfigError(UserError):
    """A setting is wrong: `<key>: got X; must be Y; do Z`."""


def refuse(problems: Iterable[Line]) -> None:
    """Raise ConfigError with all of these lines, if there are any."""
    if lines := list(problems):
        raise ConfigError(lines)


class DataError(UserError):
    """A file is wrong: `<file>, row N: got X; must be Y; do Z`."""


SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1") if hasattr(signal, name)]
"""Signals that stop a run: Ctrl-C, a scheduler's, that of a terminal which is closed, and the one that SLURM can send
before the time is over."""


class Stopped(UserError):
    """The user stopped the run. Its state is on disk, and the same command resumes it."""

    def __init__(self, messages: Line | Iterable[Line], number: int = signal.SIGINT) -> None:
        super().__init__(messages)
        self.number = number
        """The signal."""


class Interrupted(KeyboardInterrupt):
    """One of `SIGNALS`, where nothing is done before the run stops."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


received = 0
"""Number of signals of `SIGNALS` that this process has handled."""


def note() -> None:
    """Count a signal."""
    global received
    received += 1


def interrupt(number: int, frame: Any) -> None:
    """A handler of a signal."""
    note()
    raise Interrupted(number)


def listen() -> None:
    """Let the signals that stop a run raise `Interrupted`, except those that the process was started to ignore."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


@contextmanager
def listening() -> Iterator[None]:
    """As `listen` within the block, in the main thread; others get no signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    listen()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def reason(error: BaseException) -> str:
    """Type and first line of an error, at most 200 characters, for a model that failed in a report."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:200]
