"""Signals that stop a training after its current step."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from distill.errors import SIGNALS, Interrupted, note

DEBOUNCE = 1.0
"""Seconds within which a second signal counts as the first one, sent twice: the shell and the kernel both signal that a
terminal is closed, and a sweep passes on a signal that the scheduler may have sent to its jobs too."""


@dataclass
class Stop:
    """Whether a signal asked to stop, which signal, and when, by `time.monotonic`."""

    asked: bool = False
    number: int = signal.SIGINT
    at: float = 0.0


@contextlib.contextmanager
def interruptible() -> Iterator[Stop]:
    """Yield a flag that the first Ctrl-C, SIGTERM, SIGHUP or SIGUSR1 sets, so that the current step finishes.

    A second signal, more than `DEBOUNCE` seconds later, interrupts at once.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: old for number in SIGNALS if (old := signal.getsignal(number)) is not signal.SIG_IGN}

    def handler(number: int, frame: Any) -> None:
        note()
        if not stop.asked:
            stop.asked, stop.number, stop.at = True, number, time.monotonic()
        elif time.monotonic() - stop.at > DEBOUNCE:
            raise Interrupted(number)

    for number in before:
        signal.signal(number, handler)
    try:
        yield stop
    finally:
        for number, old in before.items():
            signal.signal(number, old)
