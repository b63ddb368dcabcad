"""Readable messages for errors of full and read-only disks."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from distill.errors import UserError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a full disk, of a quota, and of a limit to the size of files."""
_REFUSED = (errno.EROFS, errno.EACCES, errno.EIO)
_ADVICE: dict[int | None, str] = {
    errno.EFBIG: "allowed to be so large; raise the limit (ulimit -f), or use another disk",
    errno.ENAMETOOLONG: "a shorter name; choose one",
}
"""Error -> what the file must be, and what to do, where that is another thing than for the other errors."""

_SPECIAL: dict[Callable[[int], bool], str] = {
    stat.S_ISLNK: "a symbolic link",
    stat.S_ISDIR: "a folder",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
    stat.S_ISFIFO: "a pipe",
    stat.S_ISSOCK: "a socket",
}


def special(path: Path) -> str | None:
    """What a path leads to, e.g. "a device"; None for an ordinary file, and where nothing is."""
    try:
        mode = os.lstat(path).st_mode
    except (OSError, ValueError):
        return None
    return None if stat.S_ISREG(mode) else next((name for test, name in _SPECIAL.items() if test(mode)), "no file")


def is_null(path: Path) -> bool:
    """Whether a path is itself the null device, such as /dev/null, which drops what is written to it."""
    try:
        status = os.lstat(path)
        return stat.S_ISCHR(status.st_mode) and status.st_rdev == os.stat(os.devnull).st_rdev
    except (OSError, ValueError):
        return False


def put(temporary: Path, path: Path, *, new: bool) -> None:
    """Rename a file to `path`, in place of a file there, unless it must be `new`.

    Raises:
        UserError: if a `new` file already exists. A file system without hard links cannot tell.
    """
    if new:
        try:
            os.link(temporary, path)  # its other name is removed with its folder
            return
        except FileExistsError as error:
            raise UserError(
                f"{path}: got a file that another process wrote meanwhile; must be a new one; choose another"
            ) from error
        except OSError:
            pass
    temporary.replace(path)


def problem(error: BaseException) -> str | None:
    """The message for an error of a disk that is full or cannot be written, and of a name that is too long; None for
    any other error."""
    if not isinstance(error, OSError) or error.errno not in (*FULL, *_REFUSED, *_ADVICE):
        return None
    usual = "on a disk with more free space; free some" if error.errno in FULL else "readable and writable; correct it"
    advice = _ADVICE.get(error.errno, usual)
    return f"{error.filename or 'disk'}: got {error.strerror}; must be {advice}, then run the same command"


class Full(OSError):
    """A disk became full."""

    written = 0
    """Bytes that were written before the disk was full, and are free again."""


@contextmanager
def measured(target: Path, temporary: Path) -> Iterator[None]:
    """Raise the errors that `problem` describes as `OSError` for `target`, whatever library they come from.

    Errors of a full disk are raised as `Full`, with the number of bytes that were written.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        # An error of a copy has both names; other errors have no name.
        names = [name for key in ("filename", "filename2") if (name := getattr(error, key, None)) is not None]
        elsewhere = names and not any(Path(name).is_relative_to(temporary) for name in names)
        number = _number(error)
        if elsewhere or number not in (*FULL, *_REFUSED) or (number in _REFUSED and isinstance(error, OSError)):
            raise
        if number in _REFUSED:
            raise OSError(number, os.strerror(number), str(target)) from error
        written = _bytes(temporary) + (error.written if isinstance(error, Full) else 0)
        after = f" after {written / 2**20:,.1f} MiB of it were written" if written else ""
        full = Full(number, f"{os.strerror(number)}{after}", str(target))
        full.written = written
        raise full from error


def _number(error: Exception) -> int:
    """The operating system's number of an error; 0 without one. NumPy and libraries in Rust state it only in the
    text."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    if found := re.search(r"\(os error (\d+)\)", str(error)):
        return errno.ENOSPC if os.name == "nt" and found[1] == "112" else int(found[1])
    short = re.search(r"\d+ requested and \d+ written|Not enough free space", str(error))
    return errno.ENOSPC if isinstance(error, OSError) and short else 0


def _bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())
