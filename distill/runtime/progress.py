"""Progress of long work: a live bar with the time left on a terminal, otherwise a line of text every PLAIN_SECONDS.

Training has a `Bar` of its own. All other work calls `counted` or `waiting`, which show something only inside
`shown_on`, and only the outermost of them: bars do not nest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from distill.errors import printable
from distill.runtime.messages import events

if TYPE_CHECKING:  # a service has no rich
    from rich.console import Console
    from rich.progress import Progress

T = TypeVar("T")

PLAIN_SECONDS = 30.0
LIVE_SECONDS = 0.1
"""Least time between two drawings of a live bar."""
_console: ContextVar[Console | None] = ContextVar("_console", default=None)
_whole: ContextVar[Callable[[float | None], str] | None] = ContextVar("_whole", default=None)


class Bar:
    """Progress of one stage: steps, time remaining, and a text such as tokens/s and losses.

    `console` None shows nothing. `done` steps were finished by an earlier run. `training`: they are optimizer
    steps.
    """

    def __init__(
        self, console: Console | None, name: str, total: int, done: int = 0, *, training: bool = False
    ) -> None:
        name = printable(name)  # may have the name of a task, or of a file
        self.console, self.name, self.total, self.whole = console, name, total, _whole.get()
        self.training = training
        self.first = self.done = done
        self.began = self.shown = time.monotonic()
        self.live: Progress | None = None
        if console is not None and console.is_terminal:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self.live = Progress(
                TextColumn("{task.description}", style="bold", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[text]}", markup=False),
                console=console,
                transient=True,
                auto_refresh=False,  # a thread that draws would slow down what is timed
            )
            self.task = self.live.add_task(self._title(), total=total, completed=done, text="")

    def __enter__(self) -> Bar:
        if self.live:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.live.stop()

    def _title(self) -> str:
        per_step = self._per_step() if self.training else None
        return self.name if self.whole is None else f"[{self.whole(per_step)}] {self.name}"

    def _per_step(self) -> float | None:
        """Seconds of a step; None before the first one."""
        return (time.monotonic() - self.began) / (self.done - self.first) if self.done > self.first else None

    def update(self, done: int, text: str = "") -> None:
        text, self.done = printable(text), done
        if self.live:
            due = done >= self.total or time.monotonic() - self.shown >= LIVE_SECONDS
            self.shown = time.monotonic() if due else self.shown
            self.live.update(self.task, description=self._title(), completed=done, text=text, refresh=due)
        elif self.console is not None and time.monotonic() - self.shown >= PLAIN_SECONDS:
            self.shown = time.monotonic()
            remaining = (self._per_step() or 0.0) * max(0, self.total - done)
            if (to := events(self.console)) is not None:
                to.event(name=self.name, step=done, of=self.total, text=text, seconds_left=round(remaining))
                return
            parts = (f"step {done}/{self.total}", text, f"{duration(remaining)} left")
            line = f"{self._title()}: {', '.join(filter(None, parts))}"
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """`45 s`, `12 min` or `3 h 20 min`: a duration, as exactly as an estimate is."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


@contextmanager
def shown_on(console: Console | None) -> Iterator[None]:
    """Show the progress of the work in the block on a console; None shows nothing."""
    token = _console.set(console)
    try:
        yield
    finally:
        _console.reset(token)


@contextmanager
def within(whole: Callable[[float | None], str]) -> Iterator[None]:
    """Show what `whole` returns, which is about a larger work, before the name of each bar of the block.

    It is given the seconds of an optimizer step; None before the first one, and for a bar of other work.
    """
    token = _whole.set(whole)
    try:
        yield
    finally:
        _whole.reset(token)


@contextmanager
def counted(name: str, total: int) -> Iterator[Callable[[int], None]]:
    """`with counted("scoring", rows) as done`: the work of the block, which calls `done(count)` after each part."""
    finished = 0
    with Bar(_console.get(), name, total) as bar, shown_on(None):

        def done(count: int) -> None:
            nonlocal finished
            finished += count
            bar.update(finished)

        yield done


def counting(items: Iterable[T], done: Callable[[int], None]) -> Iterator[T]:
    """Yield the items one by one; each is counted when it is taken."""
    for item in items:
        done(1)
        yield item


@contextmanager
def waiting(name: str) -> Iterator[None]:
    """Show on a terminal that the block is at work, where nothing can be counted."""
    console = _console.get()
    shown: AbstractContextManager[object] = nullcontext()
    if console is not None and console.is_terminal:
        from rich.text import Text

        shown = console.status(Text(printable(name)))
    with shown, shown_on(None):
        yield
