"""Leases on pieces of work that processes and hosts share by a folder.

A lease is a file that its owner writes again and again, and that states how long it lasts. Whoever finds that a lease
has not changed for so long, and still has not when it is looked at once more, takes it. Only changes are seen and no
time is compared, so that the clocks of hosts may differ.

A lease saves work. It is no lock: where a host stood still for longer than a lease lasts, two processes may do the same
work for a while, so that what they write has to be the same, and put in place as a whole.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from distill.runtime.repeated import repeated

_RENEWALS = 4
"""How often a lease is written within the time that it lasts."""
_AWAY = (errno.ENOENT, errno.ESTALE)
"""Errors of a file that another process, or another host, removed a moment ago."""
Taken = Literal["new", "expired"]
"""How a lease was taken: nobody had it, or its owner has not renewed it."""


@dataclass(frozen=True)
class _Seen:
    """What this process saw of a lease of another one."""

    content: bytes
    since: float
    expired: float | None = None
    """When it had first not changed for as long as it lasts."""


class Leases:
    """The leases that one process takes in a folder."""

    def __init__(self, folder: Path, seconds: float) -> None:
        """
        Args:
            folder: of all leases, one file for each; it is made if it is missing.
            seconds: time after which a lease of this process that was not renewed has expired.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.seconds, self.owner = folder, seconds, secrets.token_hex(8)
        self._seen: dict[str, _Seen] = {}

    def take(self, name: str) -> Taken | None:
        """Take a lease; None if another process has it, and if it is gone a moment later.

        Raises:
            OSError: for a folder that cannot be written, and for a lease that cannot be read.
        """
        path = self.folder / name
        try:
            if self._created(path):
                return "new"
            found = path.read_bytes()
        except OSError as error:
            if _away(error):
                return None
            raise
        if not self._expired(name, found) or not self._removed(path, found):
            return None
        del self._seen[name]
        return "expired" if self._created(path) else None

    def _expired(self, name: str, found: bytes) -> bool:
        """Whether a lease has not changed for as long as it lasts, and not in the interval of renewals after that
        either: this process itself may have stood still, together with the owner."""
        now = time.monotonic()
        seen = self._seen.get(name)
        if seen is None or seen.content != found:
            self._seen[name] = _Seen(found, now)
            return False
        lasts = _lasts(found, self.seconds)
        if now - seen.since < lasts:
            return False
        if seen.expired is None:
            self._seen[name] = _Seen(found, seen.since, now)
            return False
        return now - seen.expired >= lasts / _RENEWALS

    def release(self, name: str) -> None:
        """Give a lease back, if it is still this process's. One that cannot be removed expires."""
        path = self.folder / name
        with suppress(OSError):
            if self._mine(path.read_bytes()):
                path.unlink()

    @contextmanager
    def all_returned(self) -> Iterator[None]:
        """Give back what this process still has at the end of the block: it may be told to end when it has just taken a
        lease."""
        try:
            yield
        finally:
            with suppress(OSError):  # of a folder that is away, which must not hide why the block ended
                for path in self.folder.glob("*"):
                    self.release(path.name)

    @contextmanager
    def renewed(self, name: str) -> Iterator[None]:
        """Renew a lease until the end of the block, and give it back then."""
        try:
            with repeated(lambda: self._renew(self.folder / name), self.seconds / _RENEWALS):
                yield
        finally:
            self.release(name)

    def _renew(self, path: Path) -> None:
        # Of a folder that is away for a moment, what follows is as if this process had ended. The content is replaced
        # by as many bytes, so that nobody sees a part of it; and in the file that was read, so that the lease of a
        # process which took it over meanwhile does not change.
        with suppress(OSError), path.open("r+b", buffering=0) as file:
            if self._mine(file.read()):
                file.seek(0)
                file.write(self._content())

    def _created(self, path: Path) -> bool:
        try:
            file = path.open("xb", buffering=0)
        except FileExistsError:
            return False
        try:
            with file:
                file.write(self._content())
        except BaseException:
            path.unlink(missing_ok=True)
            raise
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

    def _mine(self, content: bytes) -> bool:
        return content.startswith(self.owner.encode())

    def _content(self) -> bytes:
        """Of the same length each time."""
        return f"{self.owner} {secrets.token_hex(8)} {self.seconds:.3f}\n".encode()


LONGEST = 86_400.0
"""Most seconds that a lease may state."""


def _lasts(content: bytes, otherwise: float) -> float:
    """The seconds that a lease states; `otherwise` for one that its owner had not written when it ended."""
    try:
        seconds = float(content.split()[2])
    except (IndexError, ValueError):
        return otherwise
    return seconds if 0 < seconds <= LONGEST else otherwise


def _away(error: OSError) -> bool:
    """Whether a file is being removed. Windows refuses every access to such a file."""
    return error.errno in _AWAY or (os.name == "nt" and isinstance(error, PermissionError))
