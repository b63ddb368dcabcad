"""Standard output and error, whose reader may go away, whose disk may be full, and which may be closed."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, TextIO

closed: set[str] = set()
"""Names of the streams that were closed when the command was started: stdin, stdout, stderr."""


class Lost(Exception):
    """Standard output cannot be written any more."""


class Steady:
    """A standard stream that drops what it cannot write any more, after a message on the other stream.

    A run takes hours, and must not end because `| head -1` ended, a terminal was closed, or the disk of its log is
    full. What libraries write to its `buffer` or descriptor is not covered.

    Args:
        ends: whether `Lost` is raised then, by a command that has nothing else to do.
    """

    def __init__(self, stream: TextIO, name: str, other: Callable[[], Any], ends: bool = False) -> None:
        self._stream, self._name, self._other, self._ends = stream, name, other, ends
        self.lost: OSError | None = None
        """The error since which everything is dropped; None before."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write the text, or drop it."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._lose(error)
            return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write the lines, or drop them."""
        self.write("".join(lines))

    def flush(self) -> None:
        """Write the buffered text, or drop it."""
        try:
            self._stream.flush()
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        self.lost = error
        _to_nothing(self._stream)
        # The other stream may be lost too: it then says nothing.
        self._other().write(f"{self._name}: got {error.strerror}; what follows is not shown, and the command goes on\n")
        self._other().flush()
        if self._ends:
            raise Lost


def _to_nothing(stream: TextIO) -> None:
    """Drop everything that is written to the stream, also buffered text and the output of libraries."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)


def opened() -> None:
    """Open the streams that the command was started without, as with `>&-`.

    The next file that is opened would else take the place of a stream, and get what is printed. Characters that a
    stream cannot encode are escaped.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            closed.add(name)
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor == number:
                os.set_inheritable(number, True)
            else:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def steady() -> None:
    """Let this process go on when its output cannot be written."""
    opened()
    if not isinstance(sys.stdout, Steady):
        sys.stdout = Steady(sys.stdout, "standard output", lambda: sys.stderr)
        sys.stderr = Steady(sys.stderr, "standard error", _Nothing)


class _Nothing:
    """A stream that drops what is written: nobody can read that standard error itself is lost."""

    def write(self, text: str) -> None:
        """Write nothing."""

    def flush(self) -> None:
        """Write nothing."""


def printed(main: Callable[[], int], first: bool = False) -> int:
    """The exit code of a command that prints its result: 2, with a message, if the result cannot be written.

    A reader that ends early, such as `head`, has what it wants, and is no error.

    Args:
        first: whether the command ends as soon as nobody reads its output; else it first does the rest, such as writing
            files.
    """
    opened()
    kept = Steady(sys.stdout, "", _Nothing, ends=first)
    # A note that nobody reads ends no command.
    sys.stdout, sys.stderr = kept, Steady(sys.stderr, "", _Nothing)
    code = 0
    try:
        code = main()
        sys.stdout.flush()
    except Lost:
        pass
    if kept.lost is None or isinstance(kept.lost, BrokenPipeError):
        return code
    sys.stderr.write(f"standard output: got {kept.lost.strerror}; must be writable; write to another disk\n")
    return 2
