"""Runs distill and disturbs it at a moment.

    python -P killed.py never 0 0 recipe=distilbert output=run
    python -P killed.py killed 12 0 recipe=distilbert output=run  # SIGKILL at the 12th access to a file in here
    python -P killed.py later 3.5 0 recipe=distilbert output=run  # SIGKILL 3.5 seconds after the first access
    python -P killed.py stopped 12 0 recipe=distilbert output=run # SIGTERM at the 12th access
    python -P killed.py full 12 0 recipe=distilbert output=run    # from the 12th access on, the disk is full

Prints on standard error the number of accesses of each process with the seconds from the first, and the file at which
it was disturbed. Of several processes, the one with the number that follows the moment is disturbed.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.utime"}
"""Audit events of Python. Each comes before what it is about is done."""
SIGNALS = {"killed": signal.SIGKILL, "later": signal.SIGKILL, "stopped": signal.SIGTERM}


class Watch:
    def __init__(self, how: str, moment: float) -> None:
        self.how, self.moment, self.accesses, self.here = how, moment, 0, os.getcwd()
        self.began = 0.0

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in EVENTS or not arguments or not isinstance(arguments[0], str | Path):
            return
        path = os.path.join(self.here, arguments[0])
        if not path.startswith(self.here + os.sep):
            return
        self.accesses += 1
        self.began = self.began or time.monotonic()
        name = f"{event.removeprefix('os.')} {os.path.relpath(path, self.here)}"
        if self.how == "later" and self.accesses == 1:
            timer = threading.Timer(self.moment, self.disturb, ["a moment between accesses"])
            timer.daemon = True
            timer.start()
        elif self.how in ("killed", "stopped") and self.accesses == int(self.moment):
            self.disturb(name)
        elif self.how == "full" and self.accesses >= self.moment and _takes_space(event, arguments):
            os.write(2, f"disturbed at: {name}\n".encode())
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(arguments[0]))

    def disturb(self, name: str) -> None:
        os.write(2, f"disturbed at: {name}\n".encode())
        os.kill(os.getpid(), SIGNALS[self.how])


def _takes_space(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "os.mkdir":
        return True
    return event == "open" and isinstance(arguments[1], str) and bool(set(arguments[1]) & set("wax"))


def main() -> None:
    how, moment = sys.argv.pop(1), float(sys.argv.pop(1))
    chosen, rank = int(sys.argv.pop(1)), int(os.environ.get("RANK", "0"))
    watch = Watch(how if rank == chosen else "never", moment)
    sys.addaudithook(watch)
    from distill.cli.run import main

    try:
        main()
    finally:
        seconds = time.monotonic() - watch.began if watch.began else 0.0
        os.write(2, f"accesses of {rank}: {watch.accesses} in {seconds:.2f} s\n".encode())


if __name__ == "__main__":
    main()
