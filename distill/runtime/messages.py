"""What a run prints: lines for people, one JSON object a line for programs, or its end alone."""

from __future__ import annotations

import io
import json
import sys
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:  # a service has no rich
    from rich.console import Console

TEXT, JSON, QUIET = "text", "json", "quiet"
LONGEST = 1_000_000
"""Characters of a line of JSON, so that nothing wraps it."""


class JsonLines(io.TextIOBase):
    """A text file. Each line that is written to it becomes `{"time": ..., "text": ...}` on a line of `to`."""

    def __init__(self, to: TextIO) -> None:
        self._to, self._begun = to, ""

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            if line.strip():
                self.event(text=line.strip())
        return len(text)

    def event(self, **values: Any) -> None:
        """Write an object of these values, which JSON can express, with the time in UTC. As ASCII it is JSON in every
        encoding of standard output."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._to.write(json.dumps({"time": now, **values}) + "\n")
        self._to.flush()

    def flush(self) -> None:
        self._to.flush()


def console_for(log: str) -> Console:
    """The console of a run, by the setting `log`."""
    from rich.console import Console

    if log == JSON:
        to = cast(IO[str], JsonLines(sys.stdout))
        # It is no terminal, and no cell of a notebook, whatever the environment says, such as FORCE_COLOR.
        plain: dict[str, Any] = {"color_system": None, "force_terminal": False, "force_jupyter": False}
        return Console(file=to, width=LONGEST, emoji=False, **plain)
    return Console(width=None if sys.stdout.isatty() else 120, emoji=False, quiet=log == QUIET)


def events(console: Console) -> JsonLines | None:
    """Where a console writes objects, if it is one of JSON lines."""
    file: Any = console.file
    return file if isinstance(file, JsonLines) else None
