"""Locks between processes, also on file systems that have none."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

TAKEN = ".taken"
"""Ending of the file that stands for a lock where the file system has none."""
_WITHOUT = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
"""Errors of file systems without locks, e.g. NFS without its lock service."""


@contextmanager
def held(path: Path, taken: Callable[[Path], None]) -> Iterator[None]:
    """Hold the lock of a file until the end of the block.

    Where the file system has no locks, a file beside it that exists stands for one. If a killed process left such a
    file, it is removed, unless that process ran on another machine.

    Args:
        taken: called once, with the file that is locked or exists, if another process holds the lock. Unless it raises,
            the lock is waited for.

    Raises:
        OSError: if the file cannot be written, or is a symbolic link, because nothing is written through links.
    """
    if path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

    def acquired(lock: BaseFileLock) -> BaseFileLock:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            taken(Path(lock.lock_file))
            lock.acquire(poll_interval=1.0)
        return lock

    try:
        lock = acquired(FileLock(path, fallback_to_soft=False))
    except OSError as error:
        if error.errno not in _WITHOUT:
            raise
        lock = acquired(SoftFileLock(path.with_name(path.name + TAKEN)))
    try:
        yield
    finally:
        lock.release()


def is_held(path: Path) -> bool:
    """Whether a process on this machine holds the lock of a file. False for a folder, and for a file that stands for a
    lock."""
    if not path.is_file() or path.is_symlink() or path.name.endswith(TAKEN):
        return False
    from filelock import FileLock, Timeout

    lock = FileLock(path, fallback_to_soft=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    except OSError:
        return False
    lock.release()
    return False


def left(file: Path) -> str:
    """The end of a message on a held lock. It says what to do if a killed process left the file."""
    return f"; remove {file} if a run on another machine was killed and left it" if file.name.endswith(TAKEN) else ""
