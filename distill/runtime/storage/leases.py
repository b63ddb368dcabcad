"""Leases on pieces of work that processes and hosts share by a folder.

A lease is a file that its owner writes again and again. Whoever finds that a lease has not changed for as long as it
lasts takes it. Only changes are seen and no time is compared, so that the clocks of hosts may differ.

A lease saves work. It is no lock: where a host stood still for longer than a lease lasts, two processes may do the same
work for a while, so that what they write has to be the same, and put in place as a whole.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

_RENEWALS = 4
"""How often a lease is written within the time that it lasts."""
Taken = Literal["new", "expired"]
"""How a lease was taken: nobody had it, or its owner has not renewed it."""


class Leases:
    """The leases that one process takes in a folder."""

    def __init__(self, folder: Path, seconds: float) -> None:
        """
        Args:
            folder: of all leases, one file for each; it is made if it is missing.
            seconds: time after which a lease that was not renewed has expired; the same for all processes.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.seconds, self.owner = folder, seconds, secrets.token_hex(8)
        self._seen: dict[str, tuple[bytes, float]] = {}

    def take(self, name: str) -> Taken | None:
        """Take a lease; None if another process has it."""
        path = self.folder / name
        if self._created(path):
            return "new"
        try:
            found = path.read_bytes()
        except FileNotFoundError:
            return None  # released a moment ago: the next try takes it
        now = time.monotonic()
        content, since = self._seen.get(name, (None, now))
        if found != content:
            self._seen[name] = found, now
            return None
        if now - since < self.seconds or not self._removed(path, found):
            return None
        del self._seen[name]
        return "expired" if self._created(path) else None

    def release(self, name: str) -> None:
        """Give a lease back, if it is still this process's."""
        path = self.folder / name
        if self._mine(path):
            path.unlink(missing_ok=True)

    @contextmanager
    def renewed(self, name: str) -> Iterator[None]:
        """Renew a lease until the end of the block, and give it back then."""
        ended = threading.Event()
        thread = threading.Thread(target=self._renew, args=(self.folder / name, ended), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self.release(name)

    def _renew(self, path: Path, ended: threading.Event) -> None:
        while not ended.wait(self.seconds / _RENEWALS):
            with suppress(OSError):  # a folder that is away for a moment: what follows is as if this process had ended
                if self._mine(path):
                    path.write_text(self._content())

    def _created(self, path: Path) -> bool:
        try:
            with path.open("x") as file:
                file.write(self._content())
        except FileExistsError:
            return False
        return True

    def _removed(self, path: Path, expired: bytes) -> bool:
        """Remove an expired lease, of which only one process gets hold. One that another process took meanwhile is put
        back."""
        aside = path.with_name(f"{path.name}.{self.owner}")
        try:
            path.rename(aside)
            same = aside.read_bytes() == expired
            if not same:
                os.link(aside, path)
            aside.unlink()
        except OSError:
            return False
        return same

    def _mine(self, path: Path) -> bool:
        try:
            return path.read_text().startswith(self.owner)
        except OSError:
            return False

    def _content(self) -> str:
        return f"{self.owner} {secrets.token_hex(8)}\n"
