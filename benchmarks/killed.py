"""Runs distill and kills the process at a moment, without warning, as a lack of memory or of power does.

    python -P killed.py never 0 recipe=distilbert output=run
    python -P killed.py write 12 recipe=distilbert output=run     # at its 12th access to a file in the current folder
    python -P killed.py second 3.5 recipe=distilbert output=run   # so long after the first access

Prints on standard error the number of accesses, or the file at which it was killed. In several processes the moment is
that of the last one.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.utime"}
"""Audit events of Python. They come before what they are about is done."""


class Watch:
    def __init__(self, when: str, moment: float) -> None:
        self.when, self.moment, self.accesses, self.here = when, moment, 0, os.getcwd()

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in EVENTS or not arguments or not isinstance(arguments[0], str | Path):
            return
        path = os.path.join(self.here, arguments[0])
        if not path.startswith(self.here + os.sep):
            return
        self.accesses += 1
        name = f"{event.removeprefix('os.')} {os.path.relpath(path, self.here)}"
        if self.when == "write" and self.accesses >= self.moment:
            self.end(name)
        if self.when == "second" and self.accesses == 1:
            timer = threading.Timer(self.moment, self.end, [""])
            timer.daemon = True
            timer.start()

    @staticmethod
    def end(name: str) -> None:
        os.write(2, f"killed at: {name}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    when, moment = sys.argv.pop(1), float(sys.argv.pop(1))
    rank, size = (int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
    watch = Watch(when if rank == size - 1 else "never", moment)
    sys.addaudithook(watch)
    from distill.__main__ import main

    try:
        main()
    finally:
        sys.stderr.write(f"accesses: {watch.accesses}\n")


if __name__ == "__main__":
    main()
