"""Progress of a training stage: a live progress bar on a terminal, otherwise a line of text every PLAIN_SECONDS."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

PLAIN_SECONDS = 30.0


class Bar:
    """Progress of one stage: step, time remaining, and a text with tokens/s and losses.

    `console` None shows nothing; `done` steps were finished by an earlier run.
    """

    def __init__(self, console: Console | None, name: str, total: int, done: int = 0) -> None:
        self.console, self.name, self.total = console, name, total
        self.first, self.began, self.shown = done, time.monotonic(), time.monotonic()
        self.live: Progress | None = None
        if console is not None and console.is_terminal:
            self.live = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[text]}"),
                console=console,
                transient=True,
            )
            self.task = self.live.add_task(name, total=total, completed=done, text="")

    def __enter__(self) -> Bar:
        if self.live:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.live.stop()

    def update(self, done: int, text: str) -> None:
        if self.live:
            self.live.update(self.task, completed=done, text=text)
        elif self.console is not None and time.monotonic() - self.shown >= PLAIN_SECONDS:
            self.shown = time.monotonic()
            seconds_per_step = (self.shown - self.began) / max(1, done - self.first)
            remaining = seconds_per_step * (self.total - done)
            line = f"{self.name}: step {done}/{self.total}, {text}, {remaining:.0f} s left"
            self.console.print(line, highlight=False)
